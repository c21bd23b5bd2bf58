// Turns: every aggregator of a file takes part in the file's turn, and no rank has two shared files in one turn.
#include "io/rounds.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "random.hpp"

namespace cairn::io {
namespace {

TEST(FileTurns, KeepApartFilesThatShareARank) {
  auto random = test::make_random(20);
  std::uint64_t members = 0;
  for (int repeat = 0; repeat < 200; ++repeat) {
    const int ranks = static_cast<int>(test::uniform(random, 1, 40));
    const auto files = static_cast<std::uint32_t>(test::uniform(random, 1, 60));
    std::vector<std::uint64_t> sizes;
    for (std::uint32_t f = 0; f < files; ++f)
      sizes.push_back(test::uniform(random, 0, 3) == 0 ? 0 : test::uniform(random, 1, 500));
    const plan::ExtentMap extents(plan::whole_files(sizes), ranks, 16);
    const auto aggregators = plan::ExtentMaps(extents).aggregators_of_files(files);
    std::map<std::uint32_t, std::set<int>> opened;
    for (int rank = 0; rank < ranks; ++rank) {
      std::set<int> shared_turns;
      for (const FileTurn& turn : file_turns(aggregators, rank)) {
        opened[turn.file].insert(rank);
        ++members;
        if (turn.first == turn.last) {
          EXPECT_EQ(turn.turn, 2);
          continue;
        }
        EXPECT_TRUE(shared_turns.insert(turn.turn).second) << "rank " << rank << " has two shared files in one turn";
      }
      for (const plan::Extent& extent : extents.of(rank)) EXPECT_TRUE(opened[extent.file].contains(rank));
    }
    for (std::uint32_t f = 0; f < files; ++f) {
      const auto [first, last] = extents.aggregators_of_file(f);
      EXPECT_EQ(opened[f].size(), first <= last ? static_cast<std::size_t>(last - first + 1) : 0U);
    }
  }
  EXPECT_GT(members, 1000U);
}

TEST(FileTurns, EveryFileHasOneCreator) {
  const plan::ExtentMap extents({{1, 0, 100}, {3, 0, 7}}, 4, 10);
  const auto aggregators = plan::ExtentMaps(extents).aggregators_of_files(4);
  EXPECT_EQ(creator_of_file(aggregators, 0, 4), 0);  // no bytes: any rank would do
  EXPECT_EQ(creator_of_file(aggregators, 1, 4), 0);
  EXPECT_EQ(creator_of_file(aggregators, 2, 4), 2);
  EXPECT_EQ(creator_of_file(aggregators, 3, 4), 3);
}

}  // namespace
}  // namespace cairn::io
