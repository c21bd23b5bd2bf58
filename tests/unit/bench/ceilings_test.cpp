// Ceilings on simulated ranks, groups of ranks that work while the others sleep, and the page cache.
#include "bench/ceilings.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <fstream>

#include "bench/page_cache.hpp"
#include "bench/ranks.hpp"
#include "cairn/error.hpp"
#include "os/fault.hpp"
#include "os/file.hpp"
#include "simulated.hpp"
#include "temp_dir.hpp"

namespace cairn::bench {
namespace {

RawOptions small_requests() { return {RawMethod::kBuffered, 64 << 10, 2}; }

TEST(Ceilings, RawFilesAreReadByOtherNumbersOfRanks) {
  const test::TempDir folder;
  comm::run_simulated(4, [&](comm::Communicator& world) {
    RankGroups groups(world);
    RankMemory memory;
    RawStorage raw(folder.path(), small_requests(), memory);
    raw.prepare((1 << 20) + 77, 2);
    groups.run(2, [&](comm::Communicator& group) {
      const Rate rate = raw.write(group);
      EXPECT_EQ(rate.bytes, (1U << 20) + 77);
      EXPECT_GT(rate.bytes_per_second(), 0);
      EXPECT_LE(rate.seconds_first, rate.seconds);
    });
    EXPECT_EQ(raw.files().size(), 2U);
    for (const int readers : {1, 3, 4}) {
      groups.run(readers, [&](comm::Communicator& group) { EXPECT_EQ(raw.read(group).bytes, (1U << 20) + 77); });
    }
  });
}

TEST(Ceilings, AChangedRawFileIsAnErrorOnAllRanks) {
  const test::TempDir folder;
  std::atomic<int> errors{0};
  comm::run_simulated(3, [&](comm::Communicator& world) {
    RankGroups groups(world);
    RankMemory memory;
    RawStorage raw(folder.path(), small_requests(), memory);
    raw.prepare(1 << 20, 2);
    groups.run(2, [&](comm::Communicator& group) {
      raw.write(group);
      if (group.rank() == 1) {
        std::fstream file(raw_path(folder.path(), 1), std::ios::in | std::ios::out | std::ios::binary);
        file.seekp(4096 + 100);
        file.put('x').put('y').put('z');
      }
      group.barrier();
    });
    try {
      groups.run(2, [&](comm::Communicator& group) { raw.read(group); });
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kIntegrity);
      EXPECT_NE(std::string(error.what()).find("raw-00001"), std::string::npos) << error.what();
      ++errors;
    }
  });
  EXPECT_EQ(errors, 3);
}

TEST(Ceilings, OldContentIsNotTakenForNew) {
  const test::TempDir folder;
  comm::run_simulated(1, [&](comm::Communicator& world) {
    RankMemory memory;
    RawStorage raw(folder.path(), small_requests(), memory);
    raw.prepare(1 << 20, 1);
    raw.write(world);
    raw.prepare(1 << 20, 1);
    EXPECT_THROW(raw.read(world), Error);
  });
}

TEST(Ceilings, MemoryCeilingsHaveBytesAndSeconds) {
  comm::run_simulated(3, [](comm::Communicator& world) {
    for (const Rate& rate : {memcpy_ceiling(world), crc_ceiling(world), exchange_ceiling(world)}) {
      EXPECT_GT(rate.bytes, 0U);
      EXPECT_EQ(rate.bytes % 3, 0U);
      EXPECT_GT(rate.seconds, 0);
      EXPECT_LE(rate.seconds_first, rate.seconds);
    }
  });
  comm::run_simulated(1, [](comm::Communicator& world) { EXPECT_EQ(exchange_ceiling(world).bytes, 0U); });
}

TEST(RankGroups, OnlyTheFirstRanksWorkAndAllSeeTheError) {
  for (const int ranks : {1, 2, 4}) {
    std::atomic<int> worked{0};
    std::atomic<int> errors{0};
    comm::run_simulated(4, [&](comm::Communicator& world) {
      RankGroups groups(world);
      groups.run(ranks, [&](comm::Communicator& group) {
        EXPECT_EQ(group.size(), ranks);
        EXPECT_EQ(group.rank(), world.rank());
        ++worked;
      });
      try {
        groups.run(ranks, [&](comm::Communicator&) { throw Error(ErrorKind::kNotFound, "no such thing"); });
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::kNotFound);
        EXPECT_STREQ(error.what(), "no such thing");
        ++errors;
      }
      groups.run(ranks, [&](comm::Communicator&) { ++worked; });  // a group still works after an error
    });
    EXPECT_EQ(worked, 2 * ranks);
    EXPECT_EQ(errors, 4);
  }
}

TEST(PageCache, LabelsSayWhatWasFound) {
  EXPECT_EQ(cache_label(0, 1e9, 1e9), "dropped");
  EXPECT_EQ(cache_label(0.009, 1e9, 1e9), "dropped");
  EXPECT_EQ(cache_label(0.5, 1e9, 1e9), "warm cache");
  EXPECT_EQ(cache_label(0.5, 3e9, 1e9), "defeated by size");
  EXPECT_EQ(cache_label(0.5, 3e9, 0), "warm cache");
}

TEST(PageCache, SharesAreCounted) {
  const test::TempDir folder;
  std::ofstream(folder / "full") << std::string(1 << 20, 'x');
  std::ofstream(folder / "empty").flush();
  const auto files = files_in(folder.path());
  ASSERT_EQ(files.size(), 2U);
  EXPECT_EQ(cached_share(files), 1);  // just written, so still dirty
  EXPECT_EQ(cached_share({}), 0);
  os::File file(folder / "full", os::OpenMode::kWrite);
  file.sync();
  drop_pages(files);
  const std::string type = os::file_system_of(folder.path()).type;
  if (type != "ext4" && type != "xfs") GTEST_SKIP() << type << " need not drop pages when asked";
  EXPECT_EQ(cached_share(files), 0);
}

TEST(FreeMemory, IsTouchedOrItsLackIsSaid) {
  EXPECT_NO_THROW(touch_free_memory(0));
  EXPECT_NO_THROW(touch_free_memory(3 << 20));
  EXPECT_THROW(touch_free_memory(1ULL << 60), Error);
}

}  // namespace
}  // namespace cairn::bench
