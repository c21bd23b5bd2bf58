// Extents and windows: every selected byte has one aggregator and one window, cuts are on multiples
// of block_bytes, shares are even.
#include "plan/extents.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "cairn/error.hpp"
#include "seeded.hpp"

namespace cairn::plan {
namespace {

using plan_test::Seeded;

std::vector<Extent> all_extents(const ExtentMap& map) {
  std::vector<Extent> out;
  for (int rank = 0; rank < map.ranks(); ++rank) {
    for (const Extent& extent : map.of(rank)) out.push_back(extent);
  }
  std::sort(out.begin(), out.end(),
            [](const Extent& a, const Extent& b) { return std::tie(a.file, a.begin) < std::tie(b.file, b.begin); });
  return out;
}

/// Joins adjacent extents of a list that is in ascending (file, begin) order.
std::vector<FileRange> joined(const std::vector<Extent>& extents) {
  std::vector<FileRange> out;
  for (const Extent& e : extents) {
    EXPECT_LT(e.begin, e.end);
    if (!out.empty() && out.back().file == e.file && out.back().end == e.begin) {
      out.back().end = e.end;
    } else {
      out.push_back({e.file, e.begin, e.end});
    }
  }
  return out;
}

std::vector<std::uint64_t> random_sizes(Seeded& random) {
  std::vector<std::uint64_t> sizes(random.between(1, 6));
  for (auto& size : sizes) size = random.between(1, 500);
  return sizes;
}

std::vector<FileRange> random_ranges(Seeded& random, std::span<const std::uint64_t> sizes, std::uint64_t block_bytes) {
  if (random.one_in(2)) return whole_files(sizes);
  std::vector<FileRange> ranges;
  for (std::uint64_t i = random.between(0, 8); i > 0; --i) {
    const auto file = static_cast<std::uint32_t>(random.between(0, sizes.size() - 1));
    const std::uint64_t a = random.between(0, sizes[file]);
    const std::uint64_t b = random.between(0, sizes[file]);
    ranges.push_back({file, std::min(a, b), std::max(a, b)});
  }
  return widen_to_blocks(ranges, sizes, block_bytes);
}

void check_map(const ExtentMap& map, const std::vector<FileRange>& ranges, const Assignment& assignment) {
  const std::vector<Extent> extents = all_extents(map);
  std::vector<FileRange> nonempty = ranges;
  std::erase_if(nonempty, [](const FileRange& r) { return r.begin == r.end; });
  ASSERT_EQ(joined(extents), joined([&] {
              std::vector<Extent> as;
              for (const FileRange& r : nonempty) as.push_back({r.file, r.begin, r.end, 0});
              return as;
            }()));
  std::uint64_t total = 0;
  std::map<std::uint32_t, std::map<int, std::uint64_t>> blocks;  // by group and rank
  const std::uint64_t block_bytes = map.block_bytes();
  std::set<std::tuple<std::uint32_t, std::uint64_t>> seen_blocks;
  for (const Extent& e : extents) {
    total += e.end - e.begin;
    for (std::uint64_t block = e.begin / block_bytes; block <= (e.end - 1) / block_bytes; ++block) {
      ASSERT_TRUE(seen_blocks.insert({e.file, block}).second)
          << "block " << block << " of file " << e.file << " has two aggregators";
      ++blocks[assignment.group_of_file.empty() ? 0 : assignment.group_of_file[e.file]][e.rank];
    }
  }
  EXPECT_EQ(total, map.total_bytes());
  for (const auto& [group, by_rank] : blocks) {
    if (assignment.is_by_file()) break;
    std::uint64_t least = UINT64_MAX;
    std::uint64_t most = 0;
    for (int aggregator = 0; aggregator < map.aggregators(); ++aggregator) {
      const int rank = assignment.ranks.empty() ? aggregator : assignment.ranks[static_cast<std::size_t>(aggregator)];
      const std::uint64_t count = by_rank.contains(rank) ? by_rank.at(rank) : 0;
      least = std::min(least, count);
      most = std::max(most, count);
    }
    EXPECT_LE(most - least, 1U) << "group " << group;
  }
}

Assignment random_assignment(Seeded& random, std::size_t files, int aggregators) {
  Assignment assignment;
  if (random.one_in(2)) {
    int rank = -1;
    for (int aggregator = 0; aggregator < aggregators; ++aggregator)
      assignment.ranks.push_back(rank += static_cast<int>(random.between(1, 4)));
  }
  if (random.one_in(2)) {
    std::uint32_t group = 0;
    for (std::size_t file = 0; file < files; ++file) {
      assignment.group_of_file.push_back(group += random.one_in(2) ? 1 : 0);
    }
  }
  assignment.one_aggregator_per_file = random.one_in(3);
  if (random.one_in(4)) {
    for (std::size_t file = 0; file < files; ++file) {
      assignment.aggregator_of_file.push_back(
          static_cast<int>(random.between(0, static_cast<unsigned>(aggregators - 1))));
    }
  }
  return assignment;
}

void check_aggregator_of_file(const ExtentMap& map, const Assignment& assignment) {
  for (const Extent& e : all_extents(map)) {
    const auto aggregator = static_cast<std::size_t>(assignment.aggregator_of_file.at(e.file));
    EXPECT_EQ(e.rank, assignment.ranks.empty() ? static_cast<int>(aggregator) : assignment.ranks.at(aggregator));
  }
}

// Expects each file to have one aggregator, and the aggregators to be in file order.
void check_one_aggregator_per_file(const ExtentMap& map) {
  std::map<std::uint32_t, std::set<int>> ranks;
  for (const Extent& e : all_extents(map)) ranks[e.file].insert(e.rank);
  int last = 0;
  for (const auto& [file, of_file] : ranks) {
    EXPECT_EQ(of_file.size(), 1U) << "file " << file;
    EXPECT_GE(*of_file.begin(), last);
    last = *of_file.begin();
  }
}

void check_covering(Seeded& random, const ExtentMap& map, std::span<const std::uint64_t> sizes) {
  const auto file = static_cast<std::uint32_t>(random.between(0, sizes.size()));
  const std::uint64_t a = random.between(0, 520);
  const std::uint64_t b = random.between(0, 520);
  std::vector<Extent> expected;
  int first = 0;
  int last = -1;
  for (Extent e : all_extents(map)) {
    if (e.file != file) continue;
    if (first > last) first = e.rank;
    last = e.rank;
    e.begin = std::max(e.begin, std::min(a, b));
    e.end = std::min(e.end, std::max(a, b));
    if (e.begin < e.end) expected.push_back(e);
  }
  EXPECT_EQ(map.covering(file, std::min(a, b), std::max(a, b)), expected);
  EXPECT_EQ(map.aggregators_of_file(file).first, first);
  EXPECT_EQ(map.aggregators_of_file(file).last, last);
}

void check_windows(Seeded& random, const ExtentMap& map) {
  const std::uint64_t block_bytes = map.block_bytes();
  const std::uint64_t limit = block_bytes + random.between(0, 5 * block_bytes);
  std::uint64_t checked = 0;
  for (int rank = 0; rank < map.ranks(); ++rank) {
    const std::vector<Extent> extents = map.of(rank);
    std::vector<Extent> parts;
    for (const Window& window : cut_windows(extents, limit, block_bytes)) {
      std::uint64_t bytes = 0;
      ASSERT_FALSE(window.parts.empty());
      for (const Extent& part : window.parts) {
        bytes += part.end - part.begin;
        EXPECT_EQ(part.rank, rank);
        const bool whole_start = std::any_of(extents.begin(), extents.end(), [&](const Extent& e) {
          return e.file == part.file && e.begin == part.begin;
        });
        EXPECT_TRUE(whole_start || part.begin % block_bytes == 0);
        parts.push_back(part);
      }
      EXPECT_EQ(bytes, window.bytes);
      EXPECT_LE(bytes, limit);
      checked += bytes;
    }
    EXPECT_EQ(joined(parts), joined(extents));
  }
  EXPECT_EQ(checked, map.total_bytes());
}

TEST(ExtentMap, RandomMapsCoverEveryByteOnce) {
  Seeded random("ExtentMap.RandomMaps");
  SCOPED_TRACE(random.note());
  for (int round = 0; round < 1500; ++round) {
    const std::vector<std::uint64_t> sizes = random_sizes(random);
    const std::uint64_t block_bytes = random.between(1, 70);
    const std::vector<FileRange> ranges = random_ranges(random, sizes, block_bytes);
    const int aggregators = static_cast<int>(random.between(1, 64));
    const Assignment assignment = random_assignment(random, sizes.size(), aggregators);
    const ExtentMap map(ranges, aggregators, block_bytes, assignment);
    check_map(map, ranges, assignment);
    for (int i = 0; i < 5; ++i) check_covering(random, map, sizes);
    check_windows(random, map);
    if (!assignment.aggregator_of_file.empty()) {
      check_aggregator_of_file(map, assignment);
    } else if (assignment.one_aggregator_per_file) {
      check_one_aggregator_per_file(map);
    }
    if (HasFailure()) FAIL() << "round " << round << " block " << block_bytes << " aggregators " << aggregators;
  }
}

TEST(ExtentMap, CutsFallOnBlocks) {
  const std::uint64_t sizes[] = {100, 50};
  const ExtentMap map(whole_files(sizes), 3, 16);  // 7 + 4 blocks: 3, 4, 4
  EXPECT_EQ(map.of(0), (std::vector<Extent>{{0, 0, 48, 0}}));
  EXPECT_EQ(map.of(1), (std::vector<Extent>{{0, 48, 100, 1}}));
  EXPECT_EQ(map.of(2), (std::vector<Extent>{{1, 0, 50, 2}}));
  EXPECT_TRUE(map.of(3).empty());
  EXPECT_TRUE(map.of(-1).empty());
}

TEST(ExtentMap, AssignsGroupsOneByOneToTheRanksOfItsAggregators) {
  const std::uint64_t sizes[] = {64, 64, 32};
  const ExtentMap map(whole_files(sizes), 2, 16, {{3, 7}, {0, 1, 1}});
  EXPECT_EQ(map.ranks(), 8);
  EXPECT_EQ(map.of(3), (std::vector<Extent>{{0, 0, 32, 3}, {1, 0, 48, 3}}));
  EXPECT_EQ(map.of(7), (std::vector<Extent>{{0, 32, 64, 7}, {1, 48, 64, 7}, {2, 0, 32, 7}}));
  for (const int other : {0, 4, 8}) EXPECT_TRUE(map.of(other).empty());
  EXPECT_EQ(map.aggregators_of_file(1).first, 3);
  EXPECT_EQ(map.aggregators_of_file(2).first, 7);
  EXPECT_THROW(ExtentMap(whole_files(sizes), 2, 16, {{7, 3}, {}}), Error);
  EXPECT_THROW(ExtentMap(whole_files(sizes), 2, 16, {{3}, {}}), Error);
  EXPECT_THROW(ExtentMap(whole_files(sizes), 2, 16, {{}, {1, 0, 0}}), Error);
}

TEST(ExtentMap, SmallGroupsDoNotMeetAtOneAggregator) {
  const std::uint64_t sizes[] = {30, 10, 20, 10};
  const ExtentMap map(whole_files(sizes), 4, 10, {{}, {0, 1, 2, 3}});  // 3, 1, 2 and 1 blocks
  EXPECT_EQ(map.of(0), (std::vector<Extent>{{0, 0, 10, 0}, {2, 0, 10, 0}}));
  EXPECT_EQ(map.of(1), (std::vector<Extent>{{0, 10, 20, 1}, {2, 10, 20, 1}}));
  EXPECT_EQ(map.of(2), (std::vector<Extent>{{0, 20, 30, 2}, {3, 0, 10, 2}}));
  EXPECT_EQ(map.of(3), (std::vector<Extent>{{1, 0, 10, 3}}));
}

TEST(ExtentMap, GivesWholeFilesToOneAggregatorEach) {
  const std::uint64_t sizes[] = {100, 20, 40, 40, 100, 100};
  Assignment assignment{{2, 3, 5, 8}, {0, 0, 0, 1, 1, 1}, true};
  const ExtentMap map(whole_files(sizes), 4, 10, assignment);
  EXPECT_EQ(map.of(2), (std::vector<Extent>{{0, 0, 100, 2}}));
  EXPECT_EQ(map.of(3), (std::vector<Extent>{{1, 0, 20, 3}, {2, 0, 40, 3}, {3, 0, 40, 3}}));
  EXPECT_EQ(map.of(5), (std::vector<Extent>{{4, 0, 100, 5}}));
  EXPECT_EQ(map.of(8), (std::vector<Extent>{{5, 0, 100, 8}}));
  EXPECT_EQ(map.covering(4, 95, 100), (std::vector<Extent>{{4, 95, 100, 5}}));
}

TEST(ExtentMap, MoreAggregatorsThanBlocks) {
  const std::uint64_t sizes[] = {10};
  const ExtentMap map(whole_files(sizes), 1000, 4);
  EXPECT_EQ(all_extents(map), (std::vector<Extent>{{0, 0, 4, 0}, {0, 4, 8, 1}, {0, 8, 10, 2}}));
  EXPECT_EQ(map.aggregators_of_file(0).last, 2);
}

TEST(ExtentMap, NothingToDo) {
  const ExtentMap map({}, 4, 4096);
  EXPECT_EQ(map.total_bytes(), 0U);
  EXPECT_TRUE(map.of(0).empty());
  EXPECT_TRUE(map.covering(0, 0, 100).empty());
  EXPECT_GT(map.aggregators_of_file(0).first, map.aggregators_of_file(0).last);
  const std::uint64_t empty[] = {0, 7, 0};
  EXPECT_EQ(ExtentMap(whole_files(empty), 2, 4).total_bytes(), 7U);
}

TEST(ExtentMap, SizesNearTheEndOf64Bits) {
  const std::uint64_t huge = (1ULL << 63) + 12345;
  const std::uint64_t block_bytes = 4ULL << 20;
  const std::uint64_t sizes[] = {huge};
  const ExtentMap map(whole_files(sizes), 16384, block_bytes);
  std::uint64_t at = 0;
  for (int rank = 0; rank < map.aggregators(); ++rank) {
    const auto extents = map.of(rank);
    ASSERT_EQ(extents.size(), 1U);
    EXPECT_EQ(extents[0].begin, at);
    EXPECT_EQ(at % block_bytes, 0U);
    at = extents[0].end;
  }
  EXPECT_EQ(at, huge);
  const auto tail = map.covering(0, huge - 1, UINT64_MAX);
  EXPECT_EQ(tail, (std::vector<Extent>{{0, huge - 1, huge, 16383}}));
  const auto wide = widen_to_blocks({{0, huge - 1, huge}}, sizes, block_bytes);
  EXPECT_EQ(wide, (std::vector<FileRange>{{0, huge - huge % block_bytes, huge}}));
  const std::uint64_t largest[] = {UINT64_MAX};
  EXPECT_EQ(widen_to_blocks({{0, UINT64_MAX - 1, UINT64_MAX}}, largest, block_bytes).at(0).end, UINT64_MAX);
}

TEST(ExtentMap, RefusesRangesThatShareABlock) {
  EXPECT_THROW(ExtentMap({{0, 0, 10}, {0, 12, 20}}, 2, 16), Error);
  EXPECT_THROW(ExtentMap({{0, 32, 40}, {0, 0, 10}}, 2, 16), Error);
  EXPECT_THROW(ExtentMap({{1, 0, 10}, {0, 0, 10}}, 2, 16), Error);
  EXPECT_THROW(ExtentMap({{0, 9, 3}}, 2, 16), Error);
  EXPECT_THROW(ExtentMap({}, 0, 16), Error);
  EXPECT_THROW(ExtentMap({}, 1, 0), Error);
  EXPECT_NO_THROW(ExtentMap({{0, 0, 10}, {0, 17, 20}}, 2, 16));
}

TEST(WidenToBlocks, MergesAndClips) {
  const std::uint64_t sizes[] = {100, 30};
  EXPECT_EQ(widen_to_blocks({{1, 5, 6}, {0, 90, 95}, {0, 3, 4}, {0, 14, 18}, {0, 50, 50}}, sizes, 16),
            (std::vector<FileRange>{{0, 0, 32}, {0, 80, 96}, {1, 0, 16}}));
  EXPECT_EQ(widen_to_blocks({{0, 97, 98}}, sizes, 16), (std::vector<FileRange>{{0, 96, 100}}));
  EXPECT_THROW(widen_to_blocks({{2, 0, 1}}, sizes, 16), Error);
  EXPECT_THROW(widen_to_blocks({{1, 0, 31}}, sizes, 16), Error);
}

TEST(CutWindows, SpansFilesAndCutsOnBlocks) {
  const std::vector<Extent> extents = {{0, 5, 20, 3}, {1, 0, 40, 3}};
  const auto windows = cut_windows(extents, 32, 8);
  ASSERT_EQ(windows.size(), 2U);
  EXPECT_EQ(windows[0].parts, (std::vector<Extent>{{0, 5, 20, 3}, {1, 0, 16, 3}}));
  EXPECT_EQ(windows[0].bytes, 31U);
  EXPECT_EQ(windows[1].parts, (std::vector<Extent>{{1, 16, 40, 3}}));
  EXPECT_TRUE(cut_windows({}, 32, 8).empty());
  EXPECT_THROW(cut_windows(extents, 7, 8), Error);
}

}  // namespace
}  // namespace cairn::plan
