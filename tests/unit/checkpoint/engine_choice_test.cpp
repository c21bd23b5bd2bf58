// Rules by which "auto" chooses an engine, and rules for aggregators, bounce buffers and shares of the memory budget.
#include "checkpoint/engine_choice.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cairn/error.hpp"
#include "io/engine.hpp"
#include "os/file.hpp"
#include "simulated.hpp"
#include "temp_dir.hpp"

namespace cairn::checkpoint {
namespace {

using testing::HasSubstr;

std::string chosen(const std::string& file_system, const std::string& unsafe = "") {
  const EngineChoice choice = choose_by_facts({file_system, 2, unsafe});
  EXPECT_THAT(choice.reason, HasSubstr(file_system));
  return choice.name;
}

TEST(EngineChoice, GoesByTheFileSystem) {
  for (const char* local : {"ext4", "xfs", "btrfs", "overlay", "0x12345678", "nfs"}) EXPECT_EQ(chosen(local), "direct");
  for (const char* memory : {"tmpfs", "ramfs"}) EXPECT_EQ(chosen(memory), "posix");
  for (const char* parallel : {"lustre", "gpfs", "beegfs"}) {
    EXPECT_EQ(chosen(parallel), "mpiio");
    EXPECT_EQ(chosen(parallel, "ompio"), "direct");
    EXPECT_THAT(choose_by_facts({parallel, 1, "ompio"}).reason, HasSubstr("OMPI_MCA_io=romio321"));
  }
}

TEST(EngineChoice, LooksAtTheNearestFolderThatExists) {
  const test::TempDir folder;
  comm::run_simulated(3, [&](comm::Communicator& communicator) {
    const EngineChoice here = choose_engine(communicator, {}, folder.path());
    const EngineChoice below = choose_engine(communicator, {}, folder.path() / "not" / "yet");
    EXPECT_EQ(here.name, below.name);
    EXPECT_EQ(here.reason, below.reason);
    EXPECT_EQ(here.traits.name, here.name);
    const EngineChoice asked = choose_engine(communicator, {"tape", 5}, folder.path());
    EXPECT_EQ(asked.name, "tape");
    EXPECT_EQ(asked.traits.name, "") << "there is no such engine";
    EXPECT_EQ(asked.reason, "asked for");
    EXPECT_EQ(asked.aggregators_per_node, 5U);
  });
}

TEST(EngineChoice, SpreadsAggregatorsOverTheNode) {
  // 10 ranks on nodes of 4, 4 and 2.
  const std::vector<std::pair<std::uint64_t, std::vector<int>>> cases = {{0, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9}},
                                                                         {1, {0, 4, 8}},
                                                                         {2, {0, 2, 4, 6, 8, 9}},
                                                                         {9, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9}}};
  comm::run_simulated(
      10,
      [&](comm::Communicator& communicator) {
        for (const auto& [per_node, expected] : cases) {
          const EngineChoice choice{"direct", "", per_node};
          const plan::ExtentMap extents = assign_extents(communicator, {0}, {{0, 0, 1000}}, 1, choice, Access::kWrite);
          std::vector<int> aggregators;
          for (int rank = 0; rank < 12; ++rank) {
            if (!extents.of(rank).empty()) aggregators.push_back(rank);
          }
          EXPECT_EQ(aggregators, expected) << per_node << " per node";
        }
      },
      4);
}

TEST(EngineChoice, InMemoryAFileHasOneWriterAndManyReaders) {
  const EngineChoice choice = choose_by_facts({"tmpfs", 1, ""});
  EXPECT_THAT(choice.reason, HasSubstr("one writer per file"));
  comm::run_simulated(4, [&](comm::Communicator& communicator) {
    const auto extents_for = [&](Access access) {
      return assign_extents(communicator, {0, 1}, {{0, 0, 400}, {1, 0, 100}}, 10, choice, access);
    };
    EXPECT_EQ(extents_for(Access::kWrite).aggregators_of_file(0).first, 1);
    EXPECT_EQ(extents_for(Access::kWrite).aggregators_of_file(0).last, 1);
    EXPECT_EQ(extents_for(Access::kWrite).aggregators_of_file(1).first, 3);
    EXPECT_EQ(extents_for(Access::kRead).aggregators_of_file(0).last, 3);
  });
  EXPECT_FALSE(choose_by_facts({"ext4", 1, ""}).one_writer_per_file);
}

TEST(EngineChoice, LongRunsBypassTheWindowsInMemoryUnlessAggregatorsWereAskedFor) {
  const test::TempDir here;
  const bool in_memory = os::file_system_of(here.path()).lives_in_memory();
  comm::run_simulated(2, [&](comm::Communicator& communicator) {
    const auto bypass = [&](const EngineRequest& request) {
      return choose_engine(communicator, request, here.path()).bypass;
    };
    EXPECT_EQ(bypass({"auto", 0}), in_memory);
    EXPECT_EQ(bypass({"direct", 0}), in_memory);
    EXPECT_FALSE(bypass({"auto", 1}));
    EXPECT_FALSE(bypass({"mpiio", 0}));
    const auto direct_bypass = [&](const EngineRequest& request) {
      return choose_engine(communicator, request, here.path()).direct_bypass;
    };
    EXPECT_EQ(direct_bypass({"direct", 0}), !in_memory);
    EXPECT_FALSE(direct_bypass({"direct", 1}));
    EXPECT_FALSE(direct_bypass({"posix", 0}));
  });
}

TEST(SplitBudget, IsWindowsOfWholeBlocksAndBuffers) {
  constexpr std::uint64_t kMiB = 1ULL << 20;
  for (const std::uint64_t budget : {28 * kMiB, 100 * kMiB, 256 * kMiB, 4096 * kMiB}) {
    for (const std::uint64_t block : {kMiB / 16, 4 * kMiB}) {
      const MemorySplit split = split_budget(budget, block, {});
      EXPECT_GE(split.window_bytes, block);
      EXPECT_EQ(split.window_bytes % block, 0U);
      EXPECT_LE(6 * split.window_bytes + split.exchange_bytes, budget);
    }
  }
  EXPECT_EQ(split_budget(512 * kMiB, 64 * kMiB, {}).window_bytes, 64 * kMiB) << "a block must fit";
  EXPECT_THROW(split_budget(28 * kMiB - 1, 4 * kMiB, {}), Error);
}

TEST(SplitBudget, ABounceBufferTakesThePlaceOfWindows) {
  constexpr std::uint64_t kMiB = 1ULL << 20;
  EngineChoice choice;
  choice.bounce_buffer = BounceBuffer::kHugePages;
  for (const std::uint64_t ranks : {1, 4, 8, 100}) {
    choice.ranks_per_node = ranks;
    for (const std::uint64_t budget : {28 * kMiB, 31 * kMiB, 100 * kMiB, 4096 * kMiB}) {
      const MemorySplit split = split_budget(budget, 4 * kMiB, choice);
      EXPECT_GE(split.window_bytes, 4 * kMiB);
      EXPECT_EQ(split.window_bytes % (4 * kMiB), 0U);
      EXPECT_GE(split.bounce_bytes, 8 * kMiB);
      EXPECT_EQ(split.bounce_bytes % io::kRequestBytes, 0U);
      EXPECT_LE(split.window_bytes + split.bounce_bytes + split.exchange_bytes, budget);
    }
  }
  choice.ranks_per_node = 8;
  EXPECT_EQ(split_budget(256 * kMiB, 4 * kMiB, choice).bounce_bytes, 16 * kMiB) << "the ranks of a node share a disk";
  const MemorySplit none = split_budget(kMiB, 64 << 10, choice);
  EXPECT_EQ(none.bounce_bytes, 0U) << "there is no room for a request";
  EXPECT_LE(6 * none.window_bytes, kMiB);
  EXPECT_EQ(split_budget(256 * kMiB, 4 * kMiB).bounce_bytes, 0U) << "a save has none";
  EXPECT_THROW(split_budget(28 * kMiB - 1, 4 * kMiB, choice), Error);
}

TEST(SplitBudget, SlotsForDeviceMemoryComeOutOfTheExchangesShare) {
  constexpr std::uint64_t kMiB = 1ULL << 20;
  EXPECT_EQ(device_share(64 << 10), 32U << 10);
  EXPECT_EQ(device_share(32 * kMiB), 2 * kMiB);
  EXPECT_EQ(device_share(4096 * kMiB), 8 * kMiB);
  for (const std::uint64_t budget : {kMiB, 7 * kMiB, 16 * kMiB, 28 * kMiB, 128 * kMiB, 256 * kMiB, 4096 * kMiB}) {
    for (const std::uint64_t share : {budget, budget / 2}) {  // a decoding load reads with half of the budget
      const MemorySplit host = split_budget(share, 64 << 10, {});
      const MemorySplit device = host.with_device_copies(device_share(budget));
      EXPECT_EQ(device.window_bytes, host.window_bytes) << "it must be alike on all ranks";
      EXPECT_EQ(device.device_bytes, device_share(budget));
      EXPECT_EQ(device.exchange_bytes + device.device_bytes, host.exchange_bytes);
      EXPECT_LE(device.device_bytes, host.exchange_bytes) << budget;
    }
  }
}

TEST(EngineChoice, StagesWhereOnlyPrivateMemoryHasHugePages) {
  EXPECT_EQ(choose_bounce_buffer("direct", "ext4", {true, false}), BounceBuffer::kHugePages);
  EXPECT_EQ(choose_bounce_buffer("direct", "ext4", {true, true}), BounceBuffer::kNone)
      << "the windows lie in huge pages";
  EXPECT_EQ(choose_bounce_buffer("direct", "ext4", {false, false}), BounceBuffer::kNone);
  EXPECT_EQ(choose_bounce_buffer("direct", "tmpfs", {true, false}), BounceBuffer::kNone);
  for (const char* engine : {"posix", "mpiio"}) {
    EXPECT_EQ(choose_bounce_buffer(engine, "ext4", {true, false}), BounceBuffer::kNone) << engine;
  }
}

TEST(SplitBudget, WindowsAreSmallBesideTheShareOfAnAggregator) {
  constexpr std::uint64_t kMiB = 1ULL << 20;
  const MemorySplit split = split_budget(256 * kMiB, 4 * kMiB, {});
  const auto window_for = [&](std::uint64_t bytes) {
    return split.fitted_to(plan::ExtentMap({{0, 0, bytes}}, 2, 4 * kMiB)).window_bytes;
  };
  EXPECT_EQ(window_for(1), 4 * kMiB);
  EXPECT_EQ(window_for(1000 * kMiB), 8 * kMiB);
  EXPECT_EQ(window_for(1ULL << 40), split.window_bytes);
}

}  // namespace
}  // namespace cairn::checkpoint
