// The pieces of a box are bounded, in memory order, and together make up the box; boxes of many GiB are checked by
// arithmetic alone.
#include "codes/decode_pieces.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "shard/box_math.hpp"

namespace cairn::checkpoint {
namespace {

std::vector<Box> pieces_of(const Box& box, std::uint64_t limit) {
  std::vector<Box> pieces;
  codes::for_each_piece(box, limit, [&](const Box& piece) { pieces.push_back(piece); });
  return pieces;
}

TEST(BoxPieces, AreWholeRowsWhereTheyFit) {
  const Box box{{5, 0}, {7, 10}};
  EXPECT_EQ(pieces_of(box, 1000), std::vector<Box>{box});
  EXPECT_EQ(pieces_of(box, 30), (std::vector<Box>{{{5, 0}, {3, 10}}, {{8, 0}, {3, 10}}, {{11, 0}, {1, 10}}}));
  EXPECT_EQ(pieces_of(box, 6).size(), 14U);
}

TEST(BoxPieces, OfScalarsAndNothing) {
  EXPECT_EQ(pieces_of({{}, {}}, 1), (std::vector<Box>{{{}, {}}}));
  EXPECT_TRUE(pieces_of({{0, 3}, {0, 4}}, 1).empty());
}

TEST(BoxPieces, LieEndToEndInMemory) {
  const Box box{{1, 2, 3}, {3, 4, 5}};
  for (std::uint64_t limit = 1; limit <= 61; ++limit) {
    std::uint64_t at = 0;  // flat element of the box where the next piece must begin
    for (const Box& piece : pieces_of(box, limit)) {
      EXPECT_LE(shard::elements_of(piece), limit);
      std::vector<std::uint64_t> first(3);
      for (std::size_t d = 0; d < 3; ++d) first[d] = piece.offset[d] - box.offset[d];
      EXPECT_EQ(shard::flat_index(box.shape, first), at);
      std::vector<std::uint64_t> last(3);
      for (std::size_t d = 0; d < 3; ++d) last[d] = first[d] + piece.shape[d] - 1;
      at += shard::elements_of(piece);
      EXPECT_EQ(shard::flat_index(box.shape, last), at - 1) << "a piece with a hole in memory";
    }
    EXPECT_EQ(at, 60U);
  }
}

TEST(BoxPieces, OfManyGiB) {
  const auto pieces = pieces_of({{0, 0}, {6, 3'000'000'000}}, 1ULL << 30);
  EXPECT_EQ(pieces.size(), 6U * 3);
  EXPECT_EQ(pieces.back(), (Box{{5, 2'147'483'648}, {1, 852'516'352}}));
}

}  // namespace
}  // namespace cairn::checkpoint
