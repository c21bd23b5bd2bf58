// A state in device memory many times larger than the memory budget: saves and loads stay within the budget, for pinned
// memory and for the whole process, and a refused device copy leaves nothing behind. On the emulated device.
#include <gtest/gtest.h>

#include <atomic>
#include <string>

#include "checkpoint/engine_choice.hpp"
#include "checkpoint/targets.hpp"
#include "emulated_runtime.hpp"
#include "expect_error.hpp"
#include "gpu/stream.hpp"
#include "process_growth.hpp"
#include "simulated_save.hpp"

namespace cairn::test {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kTensors = 4;
constexpr std::uint64_t kRows = 1536;
constexpr std::uint64_t kRowBytes = 16384;
constexpr std::uint64_t kStateBytes = kTensors * kRows * kRowBytes;
constexpr std::uint64_t kBudgetBytes = 4ULL << 20;

Options budget_options(const std::string& engine) {
  Options options = small_options();
  options.engine.name = engine;
  options.limits.memory_budget_bytes = kBudgetBytes;
  options.files.block_bytes = 64 << 10;
  options.files.max_bytes = 1ULL << 30;
  return options;
}

std::byte content(std::uint64_t tensor, std::uint64_t row, std::uint64_t column) {
  return static_cast<std::byte>(tensor * 131 + row * 7 + column * 13 + (row * column >> 9));
}

/// A rank's rows of each tensor: in even tensors one box, whose long runs bypass the windows on a file system in
/// memory; in odd tensors two boxes that cut the columns.
class DeviceRows {
 public:
  DeviceRows(int rank, int ranks) {
    const std::uint64_t begin = kRows * static_cast<std::uint64_t>(rank) / static_cast<std::uint64_t>(ranks);
    const std::uint64_t end = kRows * (static_cast<std::uint64_t>(rank) + 1) / static_cast<std::uint64_t>(ranks);
    constexpr std::uint64_t kLeft = 5000;
    for (std::uint64_t t = 0; t < kTensors; ++t) {
      boxes_.push_back({{{begin, 0}, {end - begin, kRowBytes}}});
      if (t % 2 != 0)
        boxes_[t] = {{{begin, 0}, {end - begin, kLeft}}, {{begin, kLeft}, {end - begin, kRowBytes - kLeft}}};
      memory_.emplace_back((end - begin) * kRowBytes);
    }
  }

  /// Calls visit(byte, expected value) on the device for every byte.
  template <class Visit>
  void for_each_byte(Visit visit) const {
    const gpu::Stream stream;
    gpu::emulated::enqueue(stream.handle(), [&] {
      for (std::uint64_t t = 0; t < kTensors; ++t) {
        std::byte* at = memory_[t].span().data;
        for (const Box& box : boxes_[t]) {
          for (std::uint64_t r = 0; r < box.shape[0]; ++r) {
            for (std::uint64_t c = 0; c < box.shape[1]; ++c) {
              visit(*at++, content(t, box.offset[0] + r, box.offset[1] + c));
            }
          }
        }
      }
    });
    stream.synchronise();
  }

  template <class Entry>
  [[nodiscard]] std::vector<Entry> entries() const {
    std::vector<Entry> entries;
    for (std::uint64_t t = 0; t < kTensors; ++t) {
      Entry entry;
      static_cast<Shard&>(entry) = {"model", "t" + std::to_string(t), DType::kU8, {kRows, kRowBytes}, boxes_[t]};
      entry.data = memory_[t].span().data;
      entry.memory = Memory::kDevice;
      entries.push_back(std::move(entry));
    }
    return entries;
  }

 private:
  std::vector<std::vector<Box>> boxes_;  // by tensor
  std::vector<gpu::DeviceBuffer> memory_;
};

std::vector<std::unique_ptr<DeviceRows>> filled_state(int ranks) {
  std::vector<std::unique_ptr<DeviceRows>> state;
  for (int rank = 0; rank < ranks; ++rank) {
    state.push_back(std::make_unique<DeviceRows>(rank, ranks));
    state.back()->for_each_byte([](std::byte& byte, std::byte expected) { byte = expected; });
  }
  return state;
}

/// Expects `work` on `ranks` ranks to use no more pinned memory than the ranks' device shares, and the process to grow
/// by less than the ranks' budgets and 16 MiB, which is less than one rank's part of the state.
template <class Work>
void expect_within_budget(int ranks, Work work) {
  gpu::emulated::reset(gpu::emulated::Mode::kAsLateAsPossible);
  const std::uint64_t grown = growth_bytes([&] { comm::run_simulated(ranks, work); });
  const auto count = static_cast<std::uint64_t>(ranks);
  EXPECT_LE(gpu::emulated::usage().most_pinned_bytes, count * checkpoint::device_share(kBudgetBytes));
  EXPECT_GT(gpu::emulated::usage().most_pinned_bytes, 0U) << "nothing went through pinned memory";
  EXPECT_LT(grown, count * kBudgetBytes + (16 << 20));
  static_assert(kStateBytes >= 96ULL << 20);
}

TEST(DeviceBudget, HoldsForSavesAndLoadsOfAStateThatIsLarger) {
  const TempDir root;
  for (const int ranks : {1, 3}) {
    const char* const engine = ranks == 1 ? "posix" : "direct";
    const fs::path directory = root / std::to_string(ranks);
    {
      const auto state = filled_state(ranks);
      expect_within_budget(ranks, [&](comm::Communicator& communicator) {
        io::WindowStore store;
        const auto sources = state[static_cast<std::size_t>(communicator.rank())]->entries<Source>();
        checkpoint::Saver saver(communicator, budget_options(engine), store);
        saver.save(directory, 1, sources, {});
      });
    }
    const int loading = ranks == 1 ? 2 : 1;
    std::vector<std::unique_ptr<DeviceRows>> places;
    for (int rank = 0; rank < loading; ++rank) places.push_back(std::make_unique<DeviceRows>(rank, loading));
    expect_within_budget(loading, [&](comm::Communicator& communicator) {
      const auto opened = opening::open_checkpoint(communicator, directory);
      const auto view = codes::decoded_view(opened, {});
      const auto targets = places[static_cast<std::size_t>(communicator.rank())]->entries<Target>();
      checkpoint::Loader(communicator, opened, &view, {engine, kBudgetBytes, {}, 0})
          .load(checkpoint::find_targets(opened, view, targets).boxes);
    });
    std::uint64_t wrong = 0;
    std::uint64_t compared = 0;
    for (const auto& place : places) {
      place->for_each_byte([&](std::byte byte, std::byte expected) {
        wrong += byte != expected ? 1 : 0;
        ++compared;
      });
    }
    EXPECT_EQ(wrong, 0U) << ranks;
    EXPECT_EQ(compared, kStateBytes);
  }
}

TEST(DeviceBudget, ADeviceThatRefusesACopyEndsTheCallOnAllRanksAndTheNextOneWorks) {
  const TempDir root;
  const auto state = filled_state(3);
  const auto fail = [&](comm::Communicator& communicator, std::uint64_t countdown, const auto& work) {
    if (communicator.rank() == 0) gpu::emulated::fail_work(countdown);
    communicator.barrier();
    expect_error(ErrorKind::kIo, work, {"an emulated fault", "(rank "});
  };
  comm::run_simulated(3, [&](comm::Communicator& communicator) {
    io::WindowStore store;
    const auto& mine = *state[static_cast<std::size_t>(communicator.rank())];
    checkpoint::Saver saver(communicator, budget_options("direct"), store);
    const auto save = [&] { saver.save(root / "x", 1, mine.entries<Source>(), {}); };
    for (const std::uint64_t countdown : {1U, 200U}) {
      fail(communicator, countdown, save);
      EXPECT_FALSE(fs::exists(root / "x"));
      communicator.barrier();
    }
    save();
    const auto opened = opening::open_checkpoint(communicator, root / "x");
    const auto view = codes::decoded_view(opened, {});
    const auto load = [&] {
      checkpoint::Loader(communicator, opened, &view, {"direct", kBudgetBytes, {}, 0})
          .load(checkpoint::find_targets(opened, view, mine.entries<Target>()).boxes);
    };
    fail(communicator, 100, load);
    load();
  });
  std::uint64_t wrong = 0;
  for (const auto& place : state) {
    place->for_each_byte([&](std::byte byte, std::byte expected) { wrong += byte != expected ? 1 : 0; });
  }
  EXPECT_EQ(wrong, 0U);
}

}  // namespace
}  // namespace cairn::test
