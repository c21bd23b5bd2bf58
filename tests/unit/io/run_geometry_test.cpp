// RunGeometry against plan::for_each_run: the same bytes in the same order, from any position and in any clip.
#include "io/run_geometry.hpp"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "cairn/error.hpp"
#include "random.hpp"

namespace cairn::io {
namespace {

using BytePairs = std::vector<std::pair<std::uint64_t, std::uint64_t>>;  // file offset, memory offset of each byte

BytePairs bytes_by_plan(const plan::RunSpace& space, std::uint64_t begin, std::uint64_t end) {
  BytePairs out;
  plan::for_each_run(space, begin, end, [&](const plan::Run& run) {
    for (std::uint64_t i = 0; i < run.length_bytes; ++i) out.emplace_back(run.file_offset + i, run.memory_offset + i);
  });
  return out;
}

BytePairs bytes_by_cursor(const RunGeometry& geometry, std::uint64_t first, std::uint64_t bytes) {
  BytePairs out;
  RunCursor cursor(geometry, first, bytes);
  while (!cursor.done()) {
    const RunBatch batch = cursor.next();
    for (std::uint64_t r = 0; r < batch.count; ++r) {
      for (std::uint64_t i = 0; i < batch.length_bytes; ++i) {
        out.emplace_back(batch.file_offset + r * batch.file_stride + i,
                         batch.memory_offset + r * batch.memory_stride + i);
      }
    }
  }
  return out;
}

/// A box with a random margin around `region` in each dimension.
Box around(std::mt19937_64& random, const Box& region) {
  Box out = region;
  for (std::size_t d = 0; d < out.shape.size(); ++d) {
    const std::uint64_t below = test::uniform(random, 0, std::min<std::uint64_t>(2, region.offset[d]));
    out.offset[d] -= below;
    out.shape[d] += below + test::uniform(random, 0, 2);
  }
  return out;
}

TEST(RunGeometry, GivesTheRunsOfThePlanFromAnyPosition) {
  auto random = test::make_random(1);
  std::uint64_t compared = 0;
  for (int repeat = 0; repeat < 3000; ++repeat) {
    plan::RunSpace space;
    space.dtype = test::uniform(random, 0, 1) == 0 ? DType::kU8 : DType::kF32;
    space.stored_offset = test::uniform(random, 0, 100);
    const std::uint64_t rank = test::uniform(random, 0, 4);
    for (std::uint64_t d = 0; d < rank; ++d) {
      space.region.offset.push_back(test::uniform(random, 0, 3));
      space.region.shape.push_back(test::uniform(random, 1, 5));
    }
    space.stored_box = around(random, space.region);
    space.memory_box = around(random, space.region);
    const RunGeometry geometry(space);
    const auto [span_begin, span_end] = plan::file_span(space);
    ASSERT_EQ(geometry.file_begin(), span_begin);
    ASSERT_EQ(geometry.file_end(), span_end);
    ASSERT_EQ(geometry.bytes(), plan::run_bytes(space, span_begin, span_end));

    const std::uint64_t begin = test::uniform(random, 0, span_end + 3);
    const std::uint64_t end = test::uniform(random, begin, span_end + 6);
    const std::uint64_t first = geometry.bytes_before(begin);
    const BytePairs expected = bytes_by_plan(space, begin, end);
    ASSERT_EQ(geometry.bytes_before(end) - first, expected.size());
    ASSERT_EQ(bytes_by_cursor(geometry, first, expected.size()), expected) << "repeat " << repeat;
    const std::uint64_t cut = test::uniform(random, 0, expected.size());
    BytePairs halves = bytes_by_cursor(geometry, first, cut);
    const BytePairs rest = bytes_by_cursor(geometry, first + cut, expected.size() - cut);
    halves.insert(halves.end(), rest.begin(), rest.end());
    ASSERT_EQ(halves, expected) << "repeat " << repeat << ", cut at byte " << cut;
    compared += expected.size();
  }
  EXPECT_GT(compared, 10000U);
}

TEST(RunGeometry, HandsRowsOutInOneBatch) {
  const plan::RunSpace columns{
      DType::kBF16, {{0, 0}, {1000, 4096}}, 8, {{0, 1024}, {1000, 1024}}, {{0, 1024}, {1000, 1024}}};
  const RunGeometry geometry(columns);
  EXPECT_EQ(geometry.run_bytes(), 2048U);
  RunCursor cursor(geometry, 0, geometry.bytes());
  const RunBatch all = cursor.next();
  EXPECT_TRUE(cursor.done());
  EXPECT_EQ(all.count, 1000U);
  EXPECT_EQ(all.file_offset, 8U + 2048U);
  EXPECT_EQ(all.file_stride, 8192U);
  EXPECT_EQ(all.memory_stride, 2048U);
}

TEST(RunGeometry, CountsBeyondFourGigabytesByArithmetic) {
  const std::uint64_t rows = 1ULL << 33;
  const plan::RunSpace huge{DType::kF64, {{0, 0}, {rows, 1ULL << 20}}, 4096, {{0, 3}, {rows, 5}}, {{0, 3}, {rows, 5}}};
  const RunGeometry geometry(huge);
  EXPECT_EQ(geometry.bytes(), rows * 40);
  EXPECT_EQ(geometry.bytes_before(4096 + (rows - 1) * (8ULL << 20)), (rows - 1) * 40);
  EXPECT_EQ(geometry.bytes_before(geometry.file_end() - 1), rows * 40 - 1);
  RunCursor cursor(geometry, (rows - 1) * 40 + 7, 2);
  const RunBatch batch = cursor.next();
  EXPECT_EQ(batch.file_offset, 4096 + (rows - 1) * (8ULL << 20) + 24 + 7);
  EXPECT_EQ(batch.memory_offset, (rows - 1) * 40 + 7);
  EXPECT_EQ(batch.length_bytes, 2U);
}

TEST(RunGeometry, TakesScalarsAndEmptyRegions) {
  const RunGeometry scalar({DType::kF32, {}, 100, {}, {}});
  EXPECT_EQ(scalar.bytes(), 4U);
  EXPECT_EQ(bytes_by_cursor(scalar, 1, 2), (BytePairs{{101, 1}, {102, 2}}));
  const RunGeometry empty({DType::kF32, {{0}, {4}}, 100, {{0}, {4}}, {{2}, {0}}});
  EXPECT_EQ(empty.bytes(), 0U);
  EXPECT_EQ(empty.bytes_before(1000), 0U);
  EXPECT_TRUE(RunCursor(empty, 0, 0).done());
}

TEST(RunGeometry, RefusesWhatCannotBe) {
  EXPECT_THROW(RunGeometry({DType::kF32, {{0}, {4}}, 0, {{0}, {8}}, {{2}, {4}}}), Error);  // outside the stored box
  EXPECT_THROW(RunGeometry({DType::kF32, {{0}, {8}}, 0, {{3}, {4}}, {{2}, {4}}}), Error);  // before the memory box
  EXPECT_THROW(RunGeometry({DType::kF32, {{0}, {8}}, 0, {{0, 0}, {4, 1}}, {{2}, {1}}}), Error);
  EXPECT_THROW(RunGeometry({DType::kF4, {{0}, {8}}, 0, {{0}, {8}}, {{1}, {4}}}), Error);  // cuts a byte
  EXPECT_NO_THROW(RunGeometry({DType::kF4, {{0}, {8}}, 0, {{0}, {8}}, {{2}, {4}}}));
  const RunGeometry four({DType::kU8, {{0}, {4}}, 0, {{0}, {4}}, {{0}, {4}}});
  EXPECT_THROW(RunCursor(four, 3, 2), Error);
}

}  // namespace
}  // namespace cairn::io
