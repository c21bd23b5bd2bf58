// A state several times larger than the memory budget: staged, reloaded by another number of ranks in another layout,
// compared; and streamed from a checkpoint into a staging file and back in bounded memory.
#include <gtest/gtest.h>
#include <mpi.h>

#include <cstdio>
#include <string>

#include "cairn/staging.hpp"
#include "comm/mpi.hpp"
#include "conversion/convert.hpp"
#include "conversion/diff.hpp"
#include "process_growth.hpp"
#include "shared_temp_dir.hpp"
#include "world.hpp"

namespace cairn::test {
namespace {

constexpr std::uint64_t kBudgetBytes = 32 << 20;
constexpr std::uint64_t kRows = 4096;
constexpr std::uint64_t kColumns = 2048;
constexpr int kTensors = 5;  // tensors of 32 MiB each

/// The value of element `element` of tensor number `tensor`.
std::uint32_t value_of(int tensor, std::uint64_t element) {
  const std::uint64_t x =
      (element + 1) * 0x9E3779B97F4A7C15ULL + static_cast<std::uint64_t>(tensor) * 0xBF58476D1CE4E5B9ULL;
  return static_cast<std::uint32_t>(x >> 32 ^ x);
}

/// One rank's part of the state: rows of every tensor, or columns.
class Part {
 public:
  enum class Cut { kByRows, kByColumns };

  Part(MPI_Comm comm, Cut cut) {
    const World world(comm);
    const auto r = static_cast<std::uint64_t>(world.rank);
    const auto n = static_cast<std::uint64_t>(world.ranks);
    const std::uint64_t length = cut == Cut::kByRows ? kRows : kColumns;
    const std::uint64_t first = length * r / n;
    const std::uint64_t count = length * (r + 1) / n - first;
    box_ = cut == Cut::kByRows ? Box{{first, 0}, {count, kColumns}} : Box{{0, first}, {kRows, count}};
    for (auto& memory : memory_) memory.resize(box_.shape[0] * box_.shape[1]);
  }

  void fill() {
    visit(
        [this](int tensor, std::size_t at, std::uint64_t element) { memory_[tensor][at] = value_of(tensor, element); });
  }
  [[nodiscard]] std::uint64_t right_elements() {
    std::uint64_t right = 0;
    visit([&](int tensor, std::size_t at, std::uint64_t element) {
      right += memory_[tensor][at] == value_of(tensor, element) ? 1 : 0;
    });
    return right;
  }
  [[nodiscard]] std::uint64_t elements() const { return kTensors * memory_[0].size(); }

  std::vector<Source> sources() {
    std::vector<Source> sources;
    for (int i = 0; i < kTensors; ++i) sources.push_back({shard(i), memory_[i].data()});
    return sources;
  }
  std::vector<Target> targets() {
    std::vector<Target> targets;
    for (int i = 0; i < kTensors; ++i) targets.push_back({shard(i), memory_[i].data()});
    return targets;
  }

 private:
  [[nodiscard]] Shard shard(int i) const {
    return {"model", "layer." + std::to_string(i), DType::kU32, {kRows, kColumns}, {box_}};
  }
  template <class Visit>
  void visit(Visit visit) {
    for (int tensor = 0; tensor < kTensors; ++tensor) {
      std::size_t at = 0;
      for (std::uint64_t row = 0; row < box_.shape[0]; ++row) {
        for (std::uint64_t column = 0; column < box_.shape[1]; ++column) {
          visit(tensor, at++, (box_.offset[0] + row) * kColumns + box_.offset[1] + column);
        }
      }
    }
  }

  Box box_;
  std::vector<std::uint32_t> memory_[kTensors];
};

class LargeStaging : public testing::Test {
 protected:
  void SetUp() override { options_.limits.memory_budget_bytes = kBudgetBytes; }

  SharedTempDir directory_;
  Options options_;
  const World world_;
};

TEST_F(LargeStaging, IsReloadedByAnotherNumberOfRanksInAnotherLayout) {
  const std::filesystem::path file = directory_ / "state.h5";
  {
    Part part(MPI_COMM_WORLD, Part::Cut::kByColumns);
    part.fill();
    const Report report = stage(MPI_COMM_WORLD, file, part.sources(), options_);
    EXPECT_EQ(report.bytes, kTensors * kRows * kColumns * 4);
    EXPECT_GT(report.bytes, 4 * kBudgetBytes);
  }
  MPI_Comm fewer = MPI_COMM_NULL;
  const int readers = world_.ranks == 1 ? 1 : world_.ranks - 1;
  MPI_Comm_split(MPI_COMM_WORLD, world_.rank < readers ? 0 : MPI_UNDEFINED, world_.rank, &fewer);
  if (fewer != MPI_COMM_NULL) {
    Part part(fewer, Part::Cut::kByRows);
    load_from(fewer, file, part.targets(), options_);
    EXPECT_EQ(part.right_elements(), part.elements());
    MPI_Comm_free(&fewer);
  }
  Part columns(MPI_COMM_WORLD, Part::Cut::kByColumns);  // hyperslabs of many short rows
  load_from(MPI_COMM_WORLD, file, columns.targets(), options_);
  EXPECT_EQ(columns.right_elements(), columns.elements());
}

TEST_F(LargeStaging, StreamsFromACheckpointAndBackInBoundedMemory) {
  {
    Part part(MPI_COMM_WORLD, Part::Cut::kByRows);
    part.fill();
    Checkpointer(MPI_COMM_WORLD, directory_ / "root", options_).save(1, part.sources());
  }
  const auto communicator = comm::duplicate_mpi(MPI_COMM_WORLD);
  conversion::ConvertOptions convert;
  convert.write = options_;
  convert.read = {options_.engine.name, options_.limits.memory_budget_bytes, {}};
  const auto checkpoint = directory_ / "root" / "checkpoint-1";
  const std::uint64_t writing =
      growth_bytes([&] { conversion::convert(*communicator, checkpoint, directory_ / "state.h5", convert); });
  const std::uint64_t reading =
      growth_bytes([&] { conversion::convert(*communicator, directory_ / "state.h5", directory_ / "back", convert); });
  if (world_.ranks == 1) {  // more ranks see each other's windows, which count for all of them
    EXPECT_LT(writing, 2 * kBudgetBytes);
    EXPECT_LT(reading, 2 * kBudgetBytes);
    std::printf("[cairn] grew by %lu bytes writing, %lu reading\n", writing, reading);
  }
  const auto diff = conversion::diff(*communicator, checkpoint, directory_ / "back", {convert.read, {}, false});
  EXPECT_TRUE(diff.equal());
  EXPECT_EQ(diff.bytes_compared, kTensors * kRows * kColumns * 4);
  const auto against_h5 =
      conversion::diff(*communicator, directory_ / "state.h5", directory_ / "back", {convert.read, {}, false});
  EXPECT_TRUE(against_h5.equal());
  EXPECT_EQ(against_h5.bytes_compared, kTensors * kRows * kColumns * 4);
}

}  // namespace
}  // namespace cairn::test
