// Every byte of a raw ceiling belongs to one writer and to one reader, for any numbers of writers and readers.
#include "bench/raw_file.hpp"

#include <gtest/gtest.h>

namespace cairn::bench {
namespace {

constexpr std::uint64_t kSizes[] = {0, 1, 4095, 4096, 4097, 3 * 4096, 10 * 4096 + 17, (1ULL << 40) + 3};
constexpr int kCounts[] = {1, 2, 3, 4, 7, 64};

TEST(RawLayout, FilesHoldAllBytes) {
  for (const std::uint64_t total : kSizes) {
    for (const int writers : kCounts) {
      const RawLayout layout(total, writers);
      std::uint64_t sum = 0;
      for (int file = 0; file < writers; ++file) sum += layout.file_bytes(file);
      EXPECT_EQ(sum, total) << writers << " writers";
    }
  }
}

TEST(RawLayout, ReadersReadEveryByteOnceAndInOrder) {
  for (const std::uint64_t total : kSizes) {
    for (const int writers : kCounts) {
      for (const int readers : kCounts) {
        const RawLayout layout(total, writers);
        std::vector<std::uint64_t> next(static_cast<std::size_t>(writers), 0);
        std::uint64_t sum = 0;
        for (int reader = 0; reader < readers; ++reader) {
          for (const RawPiece& piece : layout.pieces_of(reader, readers)) {
            EXPECT_EQ(piece.offset_bytes % kRawPageBytes, 0U);
            ASSERT_EQ(piece.offset_bytes, next.at(piece.file));
            EXPECT_GT(piece.size_bytes, 0U);
            next[piece.file] += piece.size_bytes;
            sum += piece.size_bytes;
            EXPECT_LE(next[piece.file], layout.file_bytes(static_cast<int>(piece.file)));
          }
        }
        EXPECT_EQ(sum, total) << writers << " writers, " << readers << " readers";
      }
    }
  }
}

TEST(RawLayout, SharesDifferByAPageAtMost) {
  const RawLayout layout(100 * kRawPageBytes, 7);
  for (int file = 0; file < 7; ++file) {
    EXPECT_GE(layout.file_bytes(file), 14 * kRawPageBytes);
    EXPECT_LE(layout.file_bytes(file), 15 * kRawPageBytes);
  }
}

TEST(RawLayout, AsManyReadersAsWritersReadTheirOwnFiles) {
  const RawLayout layout(10 * 4096 + 17, 3);
  for (int rank = 0; rank < 3; ++rank) {
    const std::vector<RawPiece> expected = {{static_cast<std::uint32_t>(rank), 0, layout.file_bytes(rank)}};
    EXPECT_EQ(layout.pieces_of(rank, 3), expected);
  }
}

}  // namespace
}  // namespace cairn::bench
