// Overlaps and holes are found exactly where they are; a plain count per element is the reference.
#include "interop/dcp/dcp.hpp"

#include <gtest/gtest.h>

#include <ctime>
#include <numeric>

#include "random.hpp"
#include "shard/box_math.hpp"

namespace cairn::interop {
namespace {

using Shape = std::vector<std::uint64_t>;
using cairn::test::make_random;
using cairn::test::uniform;

format::StoredBox box(Shape offset, Shape shape) { return {0, 0, {std::move(offset), std::move(shape)}}; }

/// The number of boxes that hold each element, by visiting every element of every box.
std::vector<int> counts(const std::vector<format::StoredBox>& boxes, const Shape& shape) {
  std::vector<int> out(shard::elements_of(shape));
  for (std::size_t flat = 0; flat < out.size(); ++flat) {
    Shape index(shape.size());
    std::size_t rest = flat;
    for (std::size_t d = shape.size(); d-- > 0;) {
      index[d] = rest % shape[d];
      rest /= shape[d];
    }
    for (const auto& stored : boxes) {
      bool inside = true;
      for (std::size_t d = 0; d < shape.size(); ++d) {
        inside = inside && index[d] >= stored.box.offset[d] && index[d] - stored.box.offset[d] < stored.box.shape[d];
      }
      out[flat] += inside ? 1 : 0;
    }
  }
  return out;
}

TEST(Cover, PlainCases) {
  EXPECT_FALSE(find_cover_fault(std::vector{box({}, {})}, Shape{}));
  EXPECT_FALSE(find_cover_fault(std::vector{box({0}, {5})}, Shape{5}));
  EXPECT_FALSE(find_cover_fault(std::vector{box({0, 0}, {2, 4}), box({2, 0}, {1, 4})}, Shape{3, 4}));
  EXPECT_FALSE(find_cover_fault(std::vector{box({0, 2}, {3, 2}), box({0, 0}, {3, 2})}, Shape{3, 4}));
}

TEST(Cover, NamesTheOverlappingBoxes) {
  const std::vector boxes = {box({0, 0}, {2, 4}), box({2, 0}, {2, 4}), box({1, 3}, {2, 1})};
  const auto fault = find_cover_fault(boxes, Shape{4, 4});
  ASSERT_TRUE(fault && fault->overlap);
  EXPECT_EQ(fault->first, 0u);
  EXPECT_EQ(fault->second, 2u);
}

TEST(Cover, NamesTheFirstMissingElement) {
  const auto hole_of = [](const std::vector<format::StoredBox>& boxes, const Shape& shape) {
    const auto fault = find_cover_fault(boxes, shape);
    EXPECT_TRUE(fault && !fault->overlap);
    return fault ? fault->element : Shape{};
  };
  EXPECT_EQ(hole_of({}, {3, 4}), (Shape{0, 0}));
  EXPECT_EQ(hole_of({box({1}, {4})}, {5}), (Shape{0}));
  EXPECT_EQ(hole_of({box({0}, {2}), box({3}, {2})}, {5}), (Shape{2}));
  EXPECT_EQ(hole_of({box({0, 0}, {1, 4}), box({1, 0}, {1, 3})}, {2, 4}), (Shape{1, 3}));
  EXPECT_EQ(hole_of({box({0, 0}, {2, 2}), box({0, 2}, {1, 2})}, {2, 4}), (Shape{1, 2}));
}

TEST(Cover, HugeTensorsAreOnlyArithmetic) {
  const std::uint64_t half = std::uint64_t{1} << 62;
  EXPECT_FALSE(find_cover_fault(std::vector{box({0}, {half}), box({half}, {half})}, Shape{2 * half}));
  const auto fault = find_cover_fault(std::vector{box({0}, {half}), box({half}, {half - 1})}, Shape{2 * half});
  ASSERT_TRUE(fault && !fault->overlap);
  EXPECT_EQ(fault->element, (Shape{2 * half - 1}));
}

TEST(Cover, AgreesWithCountingElements) {
  auto random = make_random(1);
  int overlaps = 0;
  int holes = 0;
  int whole = 0;
  for (int round = 0; round < 3000; ++round) {
    const std::size_t rank = uniform(random, 1, 3);
    Shape shape(rank);
    for (auto& n : shape) n = uniform(random, 1, 4);
    std::vector<format::StoredBox> boxes;
    for (std::uint64_t i = uniform(random, 0, 4); i > 0; --i) {
      auto next = box(Shape(rank), Shape(rank));
      for (std::size_t d = 0; d < rank; ++d) {
        next.box.offset[d] = uniform(random, 0, shape[d] - 1);
        next.box.shape[d] = uniform(random, 1, shape[d] - next.box.offset[d]);
      }
      const auto same = [&](const auto& other) { return other.box == next.box; };
      if (std::find_if(boxes.begin(), boxes.end(), same) == boxes.end()) boxes.push_back(next);
    }
    const auto held = counts(boxes, shape);
    const auto fault = find_cover_fault(boxes, shape);
    if (*std::max_element(held.begin(), held.end()) > 1) {
      ++overlaps;
      ASSERT_TRUE(fault && fault->overlap);
      const auto both = counts({boxes[fault->first], boxes[fault->second]}, shape);
      ASSERT_EQ(*std::max_element(both.begin(), both.end()), 2);
    } else if (const auto hole = std::find(held.begin(), held.end(), 0); hole != held.end()) {
      ++holes;
      ASSERT_TRUE(fault && !fault->overlap);
      ASSERT_EQ(fault->element.size(), rank);
      std::size_t flat = 0;
      for (std::size_t d = 0; d < rank; ++d) flat = flat * shape[d] + fault->element[d];
      ASSERT_EQ(flat, static_cast<std::size_t>(hole - held.begin()));
    } else {
      ++whole;
      ASSERT_FALSE(fault);
    }
  }
  EXPECT_GT(overlaps, 100);
  EXPECT_GT(holes, 100);
  EXPECT_GT(whole, 20);
}

TEST(Cover, SomeThousandBoxes) {
  std::vector<format::StoredBox> grid;
  for (std::uint64_t row = 0; row < 64; ++row) {
    for (std::uint64_t column = 0; column < 128; ++column) grid.push_back(box({row * 3, column * 5}, {3, 5}));
  }
  const Shape shape = {64 * 3, 128 * 5};
  const std::clock_t start = std::clock();  // processor time, so a busy machine does not matter
  EXPECT_FALSE(find_cover_fault(grid, shape));
  std::swap(grid[4000], grid.back());
  grid.pop_back();
  const auto fault = find_cover_fault(grid, shape);
  ASSERT_TRUE(fault && !fault->overlap);
  EXPECT_EQ(fault->element, (Shape{4000 / 128 * 3, 4000 % 128 * 5}));
  EXPECT_LT(std::clock() - start, 2 * CLOCKS_PER_SEC);  // about 10 ms without sanitizers
}

}  // namespace
}  // namespace cairn::interop
