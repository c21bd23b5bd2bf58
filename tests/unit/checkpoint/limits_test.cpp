// Windows and bounce buffers of saves and loads stay within the memory budget; a budget that is too small is refused.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>

#include "cairn/error.hpp"
#include "checkpoint/engine_choice.hpp"
#include "expect_error.hpp"
#include "simulated_save.hpp"

namespace cairn::test {
namespace {

constexpr int kRanks = 2;
constexpr std::uint64_t kBlockBytes = 1024;

Options options_with(std::uint64_t memory_budget_bytes) {
  Options options = small_options();
  options.files.block_bytes = kBlockBytes;
  options.limits.memory_budget_bytes = memory_budget_bytes;
  options.overwrite = true;
  options.engine.aggregators_per_node = kRanks;  // all bytes go through windows, also on a file system in memory
  return options;
}

/// The largest memory that a store keeps on any rank for windows and bounce buffers.
class Kept {
 public:
  void see(const io::WindowStore& store) {
    ASSERT_NE(store.pool, nullptr) << "there were no windows";
    const std::uint64_t buffers = store.pool->bounce_buffer().empty() ? io::WindowPool::kAhead + 1 : 1;
    const std::uint64_t bytes = buffers * store.pool->bytes() + store.pool->bounce_buffer().size();
    std::uint64_t before = most_;
    while (before < bytes && !most_.compare_exchange_weak(before, bytes)) {
    }
  }
  [[nodiscard]] std::uint64_t bytes() const { return most_; }

 private:
  std::atomic<std::uint64_t> most_{0};
};

std::uint64_t kept_by_a_save(const TempDir& root, const Options& options) {
  const auto lease = lease_of(root.path(), options);
  Kept kept;
  comm::run_simulated(kRanks, [&](comm::Communicator& communicator) {
    RankState state(small_state(), Cut::kMixed, communicator.rank(), kRanks);
    state.fill(1);
    io::WindowStore store;
    checkpoint::Saver saver(communicator, options, store);
    const auto sources = state.sources();
    checkpoint::RootLife life{communicator.rank() == 0 ? lease.get() : nullptr, {}, 0};
    saver.save(root / "checkpoint-1", 1, sources, {}, &life);
    kept.see(store);
  });
  return kept.bytes();
}

std::uint64_t kept_by_a_load(const TempDir& root, std::uint64_t memory_budget_bytes) {
  Kept kept;
  comm::run_simulated(kRanks, [&](comm::Communicator& communicator) {
    const auto opened = opening::open_checkpoint(communicator, root / "checkpoint-1");
    std::vector<std::vector<std::byte>> memory;
    std::vector<plan::MemoryBox> wanted;
    for (std::uint32_t i = 0; i < opened.stored.tensors.size(); ++i) {
      const auto& tensor = opened.stored.tensors[i];
      std::uint64_t bits = bits_of(tensor.dtype);
      for (const std::uint64_t n : tensor.shape) bits *= n;
      memory.emplace_back(bits / 8);
      wanted.push_back({i, {std::vector<std::uint64_t>(tensor.shape.size(), 0), tensor.shape}, memory.back()});
    }
    io::WindowStore store;
    checkpoint::Loader loader(communicator, opened, nullptr, {"posix", memory_budget_bytes, {}, kRanks}, &store);
    loader.load(wanted);
    kept.see(store);
  });
  return kept.bytes();
}

TEST(Limits, WindowsOfSavesAndLoadsAreWithinTheBudget) {
  const TempDir root;
  const std::uint64_t smallest = checkpoint::smallest_budget(kBlockBytes);
  for (const std::uint64_t budget : {smallest, 2 * smallest, 3 * smallest}) {
    SCOPED_TRACE(budget);
    // Save and load each use at least half of the budget, so a budget that is not followed would be noticed.
    const std::uint64_t of_save = kept_by_a_save(root, options_with(budget));
    EXPECT_LE(of_save, budget);
    EXPECT_GE(of_save, budget / 2);
    const std::uint64_t of_load = kept_by_a_load(root, budget);
    EXPECT_LE(of_load, budget);
    EXPECT_GE(of_load, budget / 2);
  }
}

TEST(Limits, ABudgetThatIsTooSmallIsRefused) {
  const TempDir root;
  const std::uint64_t smallest = checkpoint::smallest_budget(kBlockBytes);
  EXPECT_EQ(smallest, 7 * kBlockBytes);
  const auto text = {std::string_view("memory budget"), std::string_view("is too small for blocks of"),
                     std::string_view("must hold 7 blocks")};
  expect_error(
      ErrorKind::kUsage, [&] { kept_by_a_save(root, options_with(smallest - 1)); }, text);
  EXPECT_FALSE(std::filesystem::exists(root / "checkpoint-1"));
  kept_by_a_save(root, options_with(smallest));
  expect_error(
      ErrorKind::kUsage, [&] { kept_by_a_load(root, smallest - 1); }, text);
  kept_by_a_load(root, smallest);
}

}  // namespace
}  // namespace cairn::test
