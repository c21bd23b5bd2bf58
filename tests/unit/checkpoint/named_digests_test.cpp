// The files that ranks read to check the digests in their names.
#include "checkpoint/named_digests.hpp"

#include <gtest/gtest.h>

#include <algorithm>

namespace cairn::checkpoint::testing {
namespace {

TEST(NamedDigests, EachFileIsReadByOneRank) {
  std::vector<NamedFile> files;
  for (const std::uint64_t size : {0ULL, 5ULL << 30, 1ULL, 5ULL << 30, 4ULL << 30, 700ULL, 5ULL << 30}) {
    files.push_back({"file", std::string(64, 'a'), size});
  }
  for (const std::uint64_t ranks : {1ULL, 2ULL, 3ULL, 7ULL, 1000ULL}) {
    std::vector<std::uint32_t> all;
    std::uint64_t most = 0;
    for (std::uint64_t rank = 0; rank < ranks; ++rank) {
      std::uint64_t bytes = 0;
      for (const std::uint32_t number : files_of_rank(files, ranks, rank)) {
        all.push_back(number);
        bytes += files[number].size_bytes;
      }
      most = std::max(most, bytes);
    }
    std::ranges::sort(all);
    EXPECT_EQ(all, (std::vector<std::uint32_t>{0, 1, 2, 3, 4, 5, 6})) << ranks << " ranks";
    EXPECT_LE(most >> 30, ranks == 1 ? 19U : ranks == 2 ? 10U : ranks == 3 ? 9U : 5U) << ranks << " ranks";
  }
  EXPECT_TRUE(files_of_rank({}, 3, 1).empty());
}

}  // namespace
}  // namespace cairn::checkpoint::testing
