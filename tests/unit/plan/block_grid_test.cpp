// Blocks of files and sets of blocks, compared with a plain list of all blocks.
#include "plan/extents.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <vector>

#include "seeded.hpp"

namespace cairn::plan {
namespace {

using plan_test::Seeded;

TEST(BlockGrid, NumbersTheBlocksOfAllFiles) {
  const BlockGrid grid({10, 0, 4, 5}, 4);
  EXPECT_EQ(grid.blocks(), 3U + 0 + 1 + 2);
  EXPECT_EQ(grid.files(), 4U);
  EXPECT_EQ(grid.block_of(0, 3), 0U);
  EXPECT_EQ(grid.block_of(0, 9), 2U);
  EXPECT_EQ(grid.block_of(1, 0), grid.end_of(1)) << "a file without bytes has no block";
  EXPECT_EQ(grid.block_of(3, 4), 5U);
  EXPECT_EQ(grid.range_of(0, 2), (FileRange{0, 8, 10})) << "the last block ends with the file";
  EXPECT_EQ(grid.range_of(3, 4), (FileRange{3, 0, 4}));
}

TEST(BlockSet, HasTheBlocksThatRangesMeetAndGivesThemBackMerged) {
  Seeded random("block sets");
  for (int round = 0; round < 300; ++round) {
    std::vector<std::uint64_t> sizes(random.between(0, 4));
    for (auto& size : sizes) size = random.between(0, 400);
    const BlockGrid grid(sizes, random.between(1, 70));
    std::set<std::size_t> expected;
    BlockSet set(grid);
    BlockSet others(grid);
    for (std::uint32_t file = 0; file < sizes.size(); ++file) {
      for (int i = 0; i < 3; ++i) {
        const std::uint64_t a = random.between(0, sizes[file]);
        const std::uint64_t b = random.between(0, sizes[file]);
        const FileRange range{file, std::min(a, b), std::max(a, b)};
        const bool is_other = i == 2;
        (is_other ? others : set).insert(range);
        for (std::uint64_t byte = range.begin; byte < range.end && !is_other; ++byte) {
          expected.insert(grid.block_of(file, byte));
        }
      }
    }
    BlockSet both = set;
    both.add(others);
    for (std::size_t block = 0; block < grid.blocks(); ++block) {
      ASSERT_EQ(set.contains(block), expected.contains(block)) << Seeded::note();
      ASSERT_EQ(both.contains(block), expected.contains(block) || others.contains(block)) << Seeded::note();
      if (others.contains(block)) expected.erase(block);
    }
    set.remove(others);
    EXPECT_EQ(set.count(), expected.size()) << Seeded::note();
    std::set<std::size_t> found;
    const std::vector<FileRange> ranges = set.ranges();
    for (std::size_t r = 0; r < ranges.size(); ++r) {
      const FileRange& range = ranges[r];
      for (std::uint64_t byte = range.begin; byte < range.end; ++byte) found.insert(grid.block_of(range.file, byte));
      if (r == 0) continue;
      const FileRange& before = ranges[r - 1];
      EXPECT_TRUE(before.file < range.file || (before.file == range.file && before.end < range.begin));
    }
    EXPECT_EQ(found, expected) << Seeded::note();
  }
}

}  // namespace
}  // namespace cairn::plan
