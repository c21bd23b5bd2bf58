// Conversions, comparisons and loads in batches make one plan for any number of windows and batches, unless the plan is
// full. They open each file at most once or twice per plan, and read the requested data.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/read_plan.hpp"
#include "conversion/convert.hpp"
#include "conversion/diff.hpp"
#include "os/system_calls.hpp"
#include "random.hpp"
#include "shard/box_math.hpp"
#include "simulated_save.hpp"

namespace cairn::test {
namespace {

namespace fs = std::filesystem;
using comm::Communicator;

/// Counts the all-to-alls of a rank; every plan has one.
class Counting final : public Communicator {
 public:
  explicit Counting(Communicator& communicator) : inner_(communicator) {}
  [[nodiscard]] std::uint64_t all_to_alls() const { return all_to_alls_; }

  [[nodiscard]] int rank() const override { return inner_.rank(); }
  [[nodiscard]] int size() const override { return inner_.size(); }
  void barrier() override { inner_.barrier(); }
  void broadcast(std::span<std::byte> data, int root) override { inner_.broadcast(data, root); }
  void all_reduce(std::span<std::uint64_t> values, comm::ReduceOp op) override { inner_.all_reduce(values, op); }
  void all_reduce(std::span<double> values, comm::ReduceOp op) override { inner_.all_reduce(values, op); }
  std::vector<base::Bytes> all_to_all(std::vector<base::Bytes> outgoing) override {
    ++all_to_alls_;
    return inner_.all_to_all(std::move(outgoing));
  }
  std::vector<base::Bytes> all_gather(std::span<const std::byte> mine) override { return inner_.all_gather(mine); }
  std::vector<base::Bytes> gather(std::span<const std::byte> mine, int root) override {
    return inner_.gather(mine, root);
  }
  std::unique_ptr<comm::Request> send(std::span<const std::byte> data, int to, int tag) override {
    return inner_.send(data, to, tag);
  }
  std::unique_ptr<comm::Request> receive(std::span<std::byte> data, int from, int tag) override {
    return inner_.receive(data, from, tag);
  }
  std::unique_ptr<Communicator> duplicate() override { return inner_.duplicate(); }
  std::unique_ptr<Communicator> subgroup(int first, int last, int tag) override {
    return inner_.subgroup(first, last, tag);
  }
  std::unique_ptr<Communicator> node() override { return inner_.node(); }

 private:
  Communicator& inner_;
  std::uint64_t all_to_alls_ = 0;
};

constexpr int kRanks = 3;
constexpr int kRanksPerNode = 2;  // so both shared windows and messages are used
constexpr std::uint64_t kBlockBytes = 1024;

/// Loads from data files in memory bypass the windows unless aggregators are requested.
enum class Way { kWindows, kBypass };

checkpoint::ReadOptions reading(Way way) {
  return {"posix", 256 << 10, {}, way == Way::kWindows ? std::uint64_t{kRanks} : 0};
}

bool is_data_file(const os::Operation& operation, const fs::path& directory) {
  return operation.path.parent_path() == directory && operation.path.extension() == ".safetensors";
}

struct Counts {
  std::uint64_t all_to_alls = 0;                                 ///< of rank 0
  std::map<std::pair<int, fs::path>, std::uint64_t> opens = {};  ///< by rank and file
  std::uint64_t writes = 0;
};

/// Runs `work` on simulated ranks. Counts rank 0's all-to-alls, opens of data files in `source`, writes to other ones.
Counts count(const fs::path& source, const std::function<void(Communicator&)>& work) {
  Counts counts;
  std::atomic<std::uint64_t> all_to_alls = 0;
  os::Recording recording;
  comm::run_simulated(
      kRanks,
      [&](Communicator& communicator) {
        os::set_fault_rank(communicator.rank());
        Counting counting(communicator);
        work(counting);
        if (communicator.rank() == 0) all_to_alls = counting.all_to_alls();
      },
      kRanksPerNode);
  counts.all_to_alls = all_to_alls;
  for (const os::Operation& operation : recording.take()) {
    const bool is_of_source = is_data_file(operation, source);
    if (operation.name == "open" && is_of_source) ++counts.opens[{operation.rank, operation.path}];
    if (operation.name == "write" && !is_of_source && operation.path.extension() == ".safetensors") ++counts.writes;
  }
  return counts;
}

class OnePlan : public testing::TestWithParam<Way> {
 protected:
  void SetUp() override {
    Options options = small_options();
    options.files.block_bytes = kBlockBytes;
    save_simulated(root_.path(), 1, Cut::kMixed, kRanks, options);
    source_ = root_ / "checkpoint-1";
  }

  Counts convert(const std::string& name, std::uint64_t block_bytes) const {
    return count(source_, [&](Communicator& communicator) {
      conversion::ConvertOptions options;
      options.write = small_options();
      options.write.files.block_bytes = block_bytes;
      options.write.limits.memory_budget_bytes = 16 * block_bytes;
      options.write.engine.aggregators_per_node = kRanks;
      options.read = reading(GetParam());
      conversion::convert(communicator, source_, root_ / name, options);
    });
  }

  /// Expects each rank to open a file at most once per plan (twice if bytes bypass windows), besides opens for headers.
  void expect_opens(const Counts& counts, std::uint64_t plans) const {
    const Counts headers = count(source_, [&](Communicator& communicator) {
      static_cast<void>(opening::open_checkpoint(communicator, source_));
    });
    std::uint64_t opened = 0;
    for (const auto& [file, opens] : counts.opens) {
      const auto before = headers.opens.find(file);
      const std::uint64_t own = opens - (before == headers.opens.end() ? 0 : before->second);
      EXPECT_LE(own, plans * (GetParam() == Way::kBypass ? 2 : 1)) << file.second << " on rank " << file.first;
      opened += own;
    }
    EXPECT_GE(opened, 16U);
  }

  TempDir root_;
  fs::path source_;
};

INSTANTIATE_TEST_SUITE_P(Ways, OnePlan, testing::Values(Way::kWindows, Way::kBypass), [](const auto& way) {
  return way.param == Way::kWindows ? std::string("Windows") : std::string("Bypass");
});

TEST_P(OnePlan, OfAConversionHoweverManyWindowsItHas) {
  const Counts small_windows = convert("small", kBlockBytes);
  const Counts large_windows = convert("large", 64 * kBlockBytes);
  EXPECT_GT(small_windows.writes, large_windows.writes + 60);
  EXPECT_EQ(small_windows.all_to_alls, large_windows.all_to_alls);
  EXPECT_EQ(data_files(source_), data_files(root_ / "small"));
  expect_opens(small_windows, 1);
}

TEST_P(OnePlan, OfAComparison) {
  convert("same", 4 * kBlockBytes);
  const auto compare = [&](std::uint64_t memory_budget_bytes) {
    return count(source_, [&](Communicator& communicator) {
      conversion::DiffOptions options{reading(GetParam()), {}, false};
      options.read.memory_budget_bytes = memory_budget_bytes;
      EXPECT_TRUE(conversion::diff(communicator, source_, root_ / "same", options).equal());
    });
  };
  const Counts many_rounds = compare(32 << 10);
  const Counts few_rounds = compare(8 << 20);
  EXPECT_EQ(many_rounds.all_to_alls, few_rounds.all_to_alls);
  expect_opens(many_rounds, 1);
}

/// At most `most` random boxes, many of them in the same blocks, and different on each rank.
std::vector<plan::MemoryBox> boxes_of(const opening::OpenCheckpoint& opened, std::uint64_t batch, int rank,
                                      std::uint64_t most) {
  auto random = make_random(100 * batch + static_cast<std::uint64_t>(rank));
  std::vector<plan::MemoryBox> boxes;
  for (std::uint64_t left = uniform(random, most > 1000 ? most - 1000 : 0, most); left > 0; --left) {
    const auto tensor = static_cast<std::uint32_t>(uniform(random, 0, opened.stored.tensors.size() - 1));
    const format::StoredTensor& stored = opened.stored.tensors[tensor];
    if (bits_of(stored.dtype) < 8 || shard::elements_of(stored.shape) == 0) continue;
    Box box = shard::whole(stored.shape);
    for (std::size_t d = 0; d < box.shape.size(); ++d) {
      box.offset[d] = uniform(random, 0, stored.shape[d] - 1);
      box.shape[d] = uniform(random, 1, stored.shape[d] - box.offset[d]);
    }
    boxes.push_back({tensor, std::move(box), {}});
  }
  return boxes;
}

/// Collective: expects batches of at most `most_boxes` boxes to get the same bytes as a load of whole tensors.
/// Returns the number of bytes that this rank compared.
std::uint64_t compare_batches(Communicator& communicator, const fs::path& source,
                              const checkpoint::ReadOptions& options, std::uint64_t batches, std::uint64_t most_boxes) {
  const auto opened = opening::open_checkpoint(communicator, source);
  const format::StoredCheckpoint stored = opened.stored.unpacked();
  std::vector<base::Bytes> whole;
  std::vector<plan::MemoryBox> all;
  for (std::uint32_t t = 0; t < stored.tensors.size(); ++t) {
    const auto& tensor = stored.tensors[t];
    whole.emplace_back(shard::elements_of(tensor.shape) * bits_of(tensor.dtype) / 8);
    all.push_back({t, shard::whole(tensor.shape), whole.back()});
  }
  checkpoint::Loader truth(communicator, opened, options);
  truth.load(all);
  checkpoint::Loader loader(communicator, opened, options);
  const auto boxes_of_batch = [&](std::uint64_t batch) {
    return boxes_of(opened, batch, communicator.rank(), most_boxes);
  };
  loader.begin({batches, boxes_of_batch});
  std::uint64_t compared = 0;
  for (std::uint64_t batch = 0; batch < batches; ++batch) {
    std::vector<plan::MemoryBox> boxes = boxes_of_batch(batch);
    std::vector<base::Bytes> memory;
    for (plan::MemoryBox& box : boxes) {
      const DType dtype = stored.tensors[box.tensor].dtype;
      memory.emplace_back(shard::elements_of(box.box) * bits_of(dtype) / 8, std::byte{0x5a});
      box.bytes = memory.back();
    }
    loader.load_next(boxes);
    for (const plan::MemoryBox& box : boxes) {
      const format::StoredTensor& tensor = stored.tensors[box.tensor];
      plan::for_each_run(plan::runs_of(tensor.dtype, {0, 0, shard::whole(tensor.shape)}, box.box, box.box),
                         [&](const plan::Run& run) {
                           EXPECT_EQ(0, std::memcmp(whole[box.tensor].data() + run.file_offset,
                                                    box.bytes.data() + run.memory_offset, run.length_bytes));
                           compared += run.length_bytes;
                         });
    }
  }
  EXPECT_THROW(loader.load_next({}), Error);  // one more than was announced
  return compared;
}

/// Batches of more boxes than kPickedAtOnce (4096). Some bytes of a batch are in windows of the previous batch.
TEST_P(OnePlan, BringsBatchesOfThousandsOfBoxes) {
  std::atomic<std::uint64_t> compared = 0;
  const Counts counts = count(source_, [&](Communicator& communicator) {
    checkpoint::ReadOptions options = reading(GetParam());
    options.memory_budget_bytes = 256 << 20;
    compared += compare_batches(communicator, source_, options, 2, 6'000);
  });
  EXPECT_GT(compared, 1'000'000U);
  EXPECT_EQ(counts.all_to_alls, 3U);  // one each for opening, the first load, and the batches
}

TEST_P(OnePlan, BringsEveryBatchToItsMemoryAndPlansAgainWhereThePlanIsFull) {
  std::atomic<std::uint64_t> compared = 0;
  const Counts counts = count(source_, [&](Communicator& communicator) {
    compared += compare_batches(communicator, source_, reading(GetParam()), 1500, 3);
  });
  EXPECT_GT(compared, 1'000'000U);
  // The first load has its own plan. The batches have several plans: the minimum memory of a plan is 1 MiB.
  EXPECT_GE(counts.all_to_alls, 3U);
  EXPECT_LE(counts.all_to_alls, 12U);
  expect_opens(counts, counts.all_to_alls);
}

// A conversion on 64 simulated ranks, without data: there are as many rounds as windows, and one plan is enough.
TEST(OnePlanAtScale, HasNoMoreRoundsThanWindows) {
  constexpr int kManyRanks = 64;
  constexpr std::uint64_t kWindowBytes = 12 << 20;
  constexpr std::uint64_t kFileBytes = 5'000'000'000;
  constexpr std::uint64_t kHeaderBytes = 100'000;
  constexpr std::uint64_t kWindows = 100;
  const std::uint64_t share = kWindows * kWindowBytes;
  opening::OpenCheckpoint opened;
  std::vector<format::StoredTensor> tensors;
  std::uint64_t total = 0;
  for (std::uint32_t file = 0; total < kManyRanks * share; ++file) {
    opened.stored.files.push_back({"model-" + std::to_string(file), kHeaderBytes + kFileBytes});
    tensors.push_back({"model", "t" + std::to_string(file), DType::kU8, {kFileBytes}, {}});
    tensors.back().boxes.push_back({file, kHeaderBytes, Box{{0}, {kFileBytes}}});
    total += kFileBytes;
  }
  opened.stored.tensors = tensors;
  opened.group_of_file = plan::section_groups(opened.stored);
  std::atomic<std::uint64_t> rounds = 0;
  std::atomic<std::uint64_t> plans = 0;
  std::atomic<std::uint64_t> bytes_read = 0;
  comm::run_simulated(kManyRanks, [&](Communicator& communicator) {
    const checkpoint::Wanted wanted{
        kWindows, [&](std::uint64_t batch) {
          std::vector<plan::MemoryBox> boxes;
          std::uint64_t at = static_cast<std::uint64_t>(communicator.rank()) * share + batch * kWindowBytes;
          for (const std::uint64_t end = at + kWindowBytes; at < end;) {
            const std::uint64_t inside = at % kFileBytes;
            const std::uint64_t bytes = std::min(end - at, kFileBytes - inside);
            boxes.push_back({static_cast<std::uint32_t>(at / kFileBytes), {{inside}, {bytes}}, {}});
            at += bytes;
          }
          return boxes;
        }};
    const checkpoint::EngineChoice choice{"direct", "", 0};
    io::WindowStore store;
    io::DeviceCopies device(io::DeviceCopies::kLeastBytes);
    std::uint64_t own_rounds = 0;
    std::uint64_t own_plans = 0;
    for (std::uint64_t first = 0; first < kWindows; ++own_plans) {
      const checkpoint::ReadPlan plan =
          checkpoint::make_read_plan(communicator, opened, wanted, first, {152 << 20, choice, store, device});
      const auto transfers = checkpoint::make_transfers(communicator, opened, wanted, plan);
      EXPECT_EQ(transfers.of_windows.size(), plan.end - first);
      for (const plan::Window& window : plan.rounds.windows) bytes_read += window.bytes;
      own_rounds += plan.rounds.count();
      first = plan.end;
    }
    if (communicator.rank() == 0) rounds = own_rounds;
    if (communicator.rank() == 0) plans = own_plans;
  });
  EXPECT_EQ(plans, 1U);  // for 81 GB; 10 TB take 4
  EXPECT_EQ(rounds, kWindows);
  EXPECT_LT(bytes_read, total + total / 50);  // blocks shared by windows are read once
}

TEST(OnePlanAtScale, OpensNoMoreFilesThanAProcessMay) {
  constexpr std::uint64_t kFiles = 1000;
  opening::OpenCheckpoint opened;
  std::vector<format::StoredTensor> tensors;
  for (std::uint32_t file = 0; file < kFiles; ++file) {
    opened.stored.files.push_back({"shard-" + std::to_string(file), 100});
    tensors.push_back({"model", "t" + std::to_string(file), DType::kU8, {100}, {}});
    tensors.back().boxes.push_back({file, 0, Box{{0}, {100}}});
  }
  opened.stored.tensors = tensors;
  opened.group_of_file = plan::section_groups(opened.stored);
  comm::run_simulated(1, [&](Communicator& communicator) {
    const checkpoint::Wanted wanted{
        kFiles, [&](std::uint64_t batch) {
          return std::vector<plan::MemoryBox>{{static_cast<std::uint32_t>(batch), Box{{0}, {100}}, {}}};
        }};
    const checkpoint::EngineChoice choice{"direct", "", 0};
    io::WindowStore store;
    io::DeviceCopies device(io::DeviceCopies::kLeastBytes);
    const checkpoint::ReadPlan plan =
        checkpoint::make_read_plan(communicator, opened, wanted, 0, {64 << 20, choice, store, device});
    EXPECT_LT(plan.end, 300U);
    EXPECT_GE(plan.end, 200U);
  });
}

}  // namespace
}  // namespace cairn::test
