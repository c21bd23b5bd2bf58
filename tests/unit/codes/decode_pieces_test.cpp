// The boxes that are decoded for a box of moments: valid for the codec, disjoint, bounded,
// and no larger than necessary.
#include "codes/decode_pieces.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <vector>

#include "quant/boxes.hpp"
#include "random.hpp"
#include "shard/box_math.hpp"

namespace cairn::checkpoint {
namespace {

using test::uniform;

TEST(DecodePieces, OfRowsOfWholeBlocks) {
  const quant::Codec& q8 = quant::find_codec("q8");
  const Box box{{2, 130}, {3, 100}};  // columns 130 to 229: block 1
  EXPECT_EQ(codes::decode_pieces(q8, {8, 512}, box, 1 << 20), (std::vector<Box>{{{2, 128}, {3, 128}}}));
  EXPECT_EQ(codes::decode_pieces(q8, {8, 512}, {{2, 130}, {3, 200}}, 1 << 20),
            (std::vector<Box>{{{2, 128}, {3, 256}}}));
  EXPECT_EQ(codes::decode_pieces(q8, {8, 512}, box, 256),
            (std::vector<Box>{{{2, 128}, {2, 128}}, {{4, 128}, {1, 128}}}));
  EXPECT_EQ(codes::decode_pieces(q8, {8, 512}, {{2, 0}, {0, 512}}, 256).size(), 0U);
}

TEST(DecodePieces, OfAFlattenedTensor) {
  const quant::Codec& q4 = quant::find_codec("q4");
  // Rows of 100: the last block has 80 of its 128 elements.
  EXPECT_EQ(codes::decode_pieces(q4, {20, 100}, {{19, 50}, {1, 50}}, 1 << 20), (std::vector<Box>{{{1920}, {80}}}));
  EXPECT_EQ(codes::decode_pieces(q4, {20, 100}, {{0, 0}, {20, 1}}, 1 << 20), (std::vector<Box>{{{0}, {1920}}}));
  // Rows far apart are read separately.
  EXPECT_EQ(codes::decode_pieces(q4, {2, 10001}, {{0, 0}, {2, 1}}, 1 << 20),
            (std::vector<Box>{{{0}, {128}}, {{9984}, {128}}}));
}

TEST(DecodePieces, AreTheBoxWhereCodesStandAlone) {
  const quant::Codec& o1 = quant::find_codec("paddle-o1");
  const Box box{{3, 5}, {7, 11}};
  EXPECT_EQ(codes::decode_pieces(o1, {64, 32}, box, 1 << 20), (std::vector<Box>{box}));
  EXPECT_EQ(codes::decode_pieces(o1, {64, 32}, box, 40).size(), 3U);
  EXPECT_EQ(codes::decode_pieces(o1, {64}, {{60}, {4}}, 1),
            (std::vector<Box>{{{60}, {1}}, {{61}, {1}}, {{62}, {1}}, {{63}, {1}}}));
}

/// A codec, the shape of a tensor that it codes, and a box of the tensor.
struct Case {
  const quant::Codec* codec;
  quant::Shape shape;
  Box box;
};

Case random_case(std::mt19937_64& random) {
  const auto codecs = quant::all_codecs();
  Case out;
  out.codec = codecs[uniform(random, 0, codecs.size() - 1)];
  do {
    out.shape = {32 * uniform(random, 1, 3), uniform(random, 1, 3) * (uniform(random, 0, 1) == 0 ? 128 : 97)};
    if (out.codec->traits().cut == quant::Cut::kWholeBlocks && uniform(random, 0, 2) == 0)
      out.shape.insert(out.shape.begin(), 3);
  } while (!out.codec->left_alone(out.shape).empty());
  for (const std::uint64_t size : out.shape) {
    const std::uint64_t begin = uniform(random, 0, size - 1);
    out.box.offset.push_back(begin);
    out.box.shape.push_back(uniform(random, 1, size - begin));
  }
  return out;
}

/// Flat elements of a box.
std::set<std::uint64_t> elements_of(const quant::Shape& shape, const Box& box) {
  std::set<std::uint64_t> flat;
  for (std::uint64_t i = 0; i < shard::elements_of(box); ++i) {
    flat.insert(shard::flat_index(shape, quant::position_of(box, i)));
  }
  return flat;
}

/// Elements of all blocks that have an element of `wanted`; a block is one element unless the codec needs whole blocks.
std::set<std::uint64_t> needed_by(const Case& c, const std::set<std::uint64_t>& wanted) {
  const std::uint64_t block = c.codec->traits().cut == quant::Cut::kWholeBlocks ? c.codec->traits().block_elements : 1;
  std::set<std::uint64_t> needed;
  for (const std::uint64_t flat : wanted) {
    const std::uint64_t begin = flat / block * block;
    const std::uint64_t end = std::min(begin + block, shard::elements_of(c.shape));
    for (std::uint64_t i = begin; i < end; ++i) needed.insert(i);
  }
  return needed;
}

void check_pieces(const Case& c, std::uint64_t limit) {
  const quant::Shape view = c.codec->view(c.shape);
  const auto wanted = elements_of(c.shape, c.box);
  const std::uint64_t block = c.codec->traits().cut == quant::Cut::kWholeBlocks ? c.codec->traits().block_elements : 1;
  std::set<std::uint64_t> covered;
  std::uint64_t run_bytes = 0;
  for (const Box& piece : codes::decode_pieces(*c.codec, c.shape, c.box, limit)) {
    ASSERT_LE(shard::elements_of(piece), std::max(limit, block));
    for (std::size_t part = 0; part < c.codec->parts(c.shape).size(); ++part) {
      ASSERT_NO_THROW((void)c.codec->part_box(c.shape, part, piece));  // the piece has whole blocks
    }
    const auto elements = elements_of(view, piece);
    for (const std::uint64_t flat : elements) ASSERT_TRUE(covered.insert(flat).second) << "twice";
    const std::vector<Box> boxes = codes::boxes_of_piece(*c.codec, c.shape, piece);
    ASSERT_EQ(shard::elements_of(boxes), shard::elements_of(piece));
    for (const plan::Run& run : codes::runs_of_boxes(DType::kF32, boxes, {0, c.box, {}})) {
      run_bytes += run.length_bytes;
      ASSERT_LE(run.file_offset + run.length_bytes, 4 * shard::elements_of(piece));
    }
  }
  ASSERT_EQ(run_bytes, 4 * wanted.size());
  ASSERT_TRUE(std::includes(covered.begin(), covered.end(), wanted.begin(), wanted.end()));
  if (view == c.shape) {
    ASSERT_EQ(covered, needed_by(c, wanted));
  }
}

TEST(DecodePieces, OfRandomBoxes) {
  auto random = test::make_random(2);
  for (int i = 0; i < 300; ++i) {
    const Case c = random_case(random);
    SCOPED_TRACE(c.codec->traits().name + " " + shard::shape_text(c.shape) + " " + shard::to_string(c.box));
    check_pieces(c, uniform(random, 1, 3000));
    if (HasFatalFailure()) return;
  }
}

TEST(DecodePieces, OfATensorOfManyGigabytes) {
  const quant::Codec& q8 = quant::find_codec("q8");
  const auto rows =
      codes::decode_pieces(q8, {1ULL << 20, 1ULL << 16}, {{(1ULL << 20) - 2, 0}, {2, 1ULL << 16}}, 1 << 16);
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[1], (Box{{(1ULL << 20) - 1, 0}, {1, 1ULL << 16}}));
  const std::uint64_t odd = (1ULL << 16) + 1;
  const auto last = codes::decode_pieces(q8, {1ULL << 20, odd}, {{(1ULL << 20) - 1, odd - 1}, {1, 1}}, 1 << 16);
  ASSERT_EQ(last.size(), 1U);
  EXPECT_EQ(last[0].offset[0] + last[0].shape[0], odd << 20);
}

}  // namespace
}  // namespace cairn::checkpoint
