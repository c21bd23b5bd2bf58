// Boxes: intersection, flat ranges (compared with every element of small tensors), slices of shards with several boxes.
#include "shard/box_math.hpp"

#include <gtest/gtest.h>

#include <random>

#include "shard/chunk.hpp"

namespace cairn::shard {
namespace {

// Flat indices of a box inside a tensor, in the box's row-major order.
std::vector<std::uint64_t> indices_of(const Shape& shape, const Box& box) {
  std::vector<std::uint64_t> out;
  for (std::uint64_t i = 0; i < elements_of(box); ++i) {
    Shape index(shape.size());
    std::uint64_t rest = i;
    for (std::size_t d = shape.size(); d-- > 0;) {
      index[d] = box.offset[d] + rest % box.shape[d];
      rest /= box.shape[d];
    }
    out.push_back(flat_index(shape, index));
  }
  return out;
}

TEST(BoxMath, EveryFlatRangeOfSmallTensors) {
  int ranges = 0;
  const std::vector<Shape> shapes{{}, {1}, {7}, {3, 4}, {1, 5}, {5, 1}, {2, 3, 4}, {3, 1, 4}, {2, 2, 3, 2}, {1, 1, 1}};
  for (const Shape& shape : shapes) {
    const std::uint64_t all = elements_of(shape);
    for (std::uint64_t begin = 0; begin <= all; ++begin) {
      for (std::uint64_t end = begin; end <= all; ++end, ++ranges) {
        const auto boxes = boxes_of_flat_range(shape, begin, end);
        ASSERT_LE(boxes.size(), shape.empty() ? 1 : 2 * shape.size() - 1);
        std::uint64_t next = begin;
        for (const Box& box : boxes) {
          ASSERT_TRUE(fits(box, shape));
          for (const std::uint64_t index : indices_of(shape, box)) ASSERT_EQ(index, next++) << to_string(box);
        }
        ASSERT_EQ(next, end);
      }
    }
  }
  EXPECT_EQ(ranges, 3 + 3 + 36 + 91 + 21 + 21 + 325 + 91 + 325 + 3);
}

TEST(BoxMath, FlatRangesOfHugeTensors) {
  const Shape shape{std::uint64_t{1} << 40, std::uint64_t{1} << 22};
  const std::uint64_t row = shape[1];
  const auto boxes = boxes_of_flat_range(shape, row - 1, (std::uint64_t{1} << 62) - row + 1);
  ASSERT_EQ(boxes.size(), 3U);
  EXPECT_EQ(boxes[0], (Box{{0, row - 1}, {1, 1}}));
  EXPECT_EQ(boxes[1], (Box{{1, 0}, {shape[0] - 2, row}}));
  EXPECT_EQ(boxes[2], (Box{{shape[0] - 1, 0}, {1, 1}}));
}

TEST(BoxMath, Intersect) {
  EXPECT_EQ(intersect({{0, 0}, {4, 4}}, {{2, 3}, {4, 4}}), (Box{{2, 3}, {2, 1}}));
  EXPECT_EQ(intersect({{0, 0}, {4, 4}}, {{4, 0}, {4, 4}}), std::nullopt);
  EXPECT_EQ(intersect({{0, 0}, {4, 0}}, {{0, 0}, {4, 4}}), std::nullopt);
  EXPECT_EQ(intersect({{}, {}}, {{}, {}}), (Box{{}, {}}));
}

TEST(BoxMath, FitsAndEmptyAndText) {
  const Shape shape{4, 4};
  EXPECT_TRUE(fits({{4, 0}, {0, 4}}, shape));
  EXPECT_FALSE(fits({{3, 0}, {2, 4}}, shape));
  EXPECT_FALSE(fits({{1, 0}, {~std::uint64_t{0}, 4}}, shape));
  EXPECT_FALSE(fits({{0}, {4}}, shape));
  EXPECT_TRUE(is_empty({{0, 0}, {4, 0}}));
  EXPECT_FALSE(is_empty({{}, {}}));
  EXPECT_EQ(elements_of(Box{}), 1U);
  EXPECT_EQ(whole(shape), (Box{{0, 0}, {4, 4}}));
  EXPECT_EQ(to_string(Box{{0, 8}, {4, 8}}), "[0:4, 8:16]");
  EXPECT_EQ(to_string(Box{}), "[]");
}

TEST(Selection, BoxesOfRangesAreOrderedAndMerged) {
  EXPECT_EQ(boxes_of({}), (std::vector<Box>{Box{}}));
  EXPECT_TRUE(boxes_of({{{0, 2}}, {}}).empty());
  EXPECT_EQ(boxes_of({{{0, 2}}, {{1, 2}, {4, 6}}}), (std::vector<Box>{{{0, 1}, {2, 1}}, {{0, 4}, {2, 2}}}));
  std::vector<Box> rows{{{0, 0}, {1, 4}}, {{1, 0}, {2, 4}}, {{3, 0}, {1, 2}}, {{3, 2}, {1, 2}}};
  merge_neighbours(rows);
  EXPECT_EQ(rows, (std::vector<Box>{{{0, 0}, {3, 4}}, {{3, 0}, {1, 4}}}));
  std::vector<Box> columns{{{0, 0}, {2, 2}}, {{0, 2}, {2, 2}}};  // not joined, since that would change the memory order
  merge_neighbours(columns);
  EXPECT_EQ(columns.size(), 2U);
}

TEST(Selection, SlicesOfRandomShards) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  const Shape shape{9, 5};
  int compared = 0;
  for (int round = 0; round < 300; ++round) {
    std::vector<Box> shard;  // some boxes of two columns, in any order
    std::vector<std::uint64_t> elements;
    for (unsigned i = random() % 4; i-- > 0;) {
      const std::uint64_t row = random() % 9;
      shard.push_back({{row, random() % 3}, {1 + random() % (9 - row), 2}});
      for (const auto index : indices_of(shape, shard.back())) elements.push_back(index);
    }
    const std::uint64_t begin = elements.empty() ? 0 : random() % elements.size();
    const std::uint64_t end = elements.empty() ? 0 : begin + random() % (elements.size() - begin + 1);
    std::vector<std::uint64_t> found;
    for (const Box& box : slice(shard, begin, end)) {
      for (const auto index : indices_of(shape, box)) found.push_back(index);
    }
    const std::vector<std::uint64_t> expected(elements.begin() + static_cast<std::ptrdiff_t>(begin),
                                              elements.begin() + static_cast<std::ptrdiff_t>(end));
    ASSERT_EQ(found, expected);
    compared += static_cast<int>(found.size());
  }
  EXPECT_GT(compared, 500);
}

}  // namespace
}  // namespace cairn::shard
