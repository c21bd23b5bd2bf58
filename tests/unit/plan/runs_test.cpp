// Runs against an element-by-element oracle, and by arithmetic alone where nothing could be allocated.
#include "plan/runs.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>
#include <numeric>

#include "cairn/error.hpp"
#include "seeded.hpp"
#include "stopwatch.hpp"

namespace cairn::plan {
namespace {

using plan_test::Seeded;

struct Bits {
  std::uint64_t file = 0;
  std::uint64_t memory = 0;
};

std::uint64_t element_in(const Box& box, const std::vector<std::uint64_t>& index) {
  std::uint64_t flat = 0;
  for (std::size_t d = 0; d < index.size(); ++d) flat = flat * box.shape[d] + (index[d] - box.offset[d]);
  return flat;
}

/// Position of every bit of the region, element by element in row-major order.
std::vector<Bits> oracle(const RunSpace& space) {
  std::vector<Bits> out;
  const std::size_t rank = space.region.shape.size();
  std::uint64_t count = 1;
  for (const auto n : space.region.shape) count *= n;
  for (std::uint64_t i = 0; i < count; ++i) {
    std::vector<std::uint64_t> index(rank);
    std::uint64_t rest = i;
    for (std::size_t d = rank; d-- > 0;) {
      index[d] = space.region.offset[d] + rest % space.region.shape[d];
      rest /= space.region.shape[d];
    }
    for (unsigned b = 0; b < bits_of(space.dtype); ++b) {
      out.push_back({space.stored_offset * 8 + element_in(space.stored_box, index) * bits_of(space.dtype) + b,
                     element_in(space.memory_box, index) * bits_of(space.dtype) + b});
    }
  }
  return out;
}

/// Maximal stretches of bits that are contiguous on both sides.
std::vector<std::pair<Bits, std::uint64_t>> stretches(const std::vector<Bits>& bits) {
  std::vector<std::pair<Bits, std::uint64_t>> out;
  for (const Bits& bit : bits) {
    if (!out.empty() && out.back().first.file + out.back().second == bit.file &&
        out.back().first.memory + out.back().second == bit.memory) {
      ++out.back().second;
    } else {
      out.push_back({bit, 1});
    }
  }
  return out;
}

std::vector<Run> runs_of(const RunSpace& space, std::uint64_t begin, std::uint64_t end) {
  std::vector<Run> out;
  for_each_run(space, begin, end, [&](const Run& run) { out.push_back(run); });
  return out;
}

std::vector<Run> clipped(const std::vector<std::pair<Bits, std::uint64_t>>& whole, std::uint64_t begin,
                         std::uint64_t end) {
  std::vector<Run> out;
  for (const auto& [at, length] : whole) {
    const std::uint64_t low = std::max(at.file / 8, begin);
    const std::uint64_t high = std::min((at.file + length) / 8, end);
    if (low < high) out.push_back({low, at.memory / 8 + (low - at.file / 8), high - low});
  }
  return out;
}

bool same(const std::vector<Run>& a, const std::vector<Run>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const Run& x, const Run& y) {
    return x.file_offset == y.file_offset && x.memory_offset == y.memory_offset && x.length_bytes == y.length_bytes;
  });
}

Box random_box_around(Seeded& random, const Box& inner) {
  Box outer = inner;
  for (std::size_t d = 0; d < inner.shape.size(); ++d) {
    if (random.one_in(2)) continue;
    const std::uint64_t before = random.between(0, std::min<std::uint64_t>(2, inner.offset[d]));
    outer.offset[d] -= before;
    outer.shape[d] += before + random.between(0, 2);
  }
  return outer;
}

RunSpace random_space(Seeded& random) {
  static constexpr DType kTypes[] = {DType::kF4, DType::kF6E2M3, DType::kU8, DType::kBF16, DType::kF32, DType::kC64};
  RunSpace space;
  space.dtype = kTypes[random.between(0, 5)];
  space.stored_offset = random.between(0, 40);
  const std::uint64_t rank = random.between(0, 4);
  for (std::uint64_t d = 0; d < rank; ++d) {
    space.region.offset.push_back(random.between(0, 3));
    space.region.shape.push_back(random.one_in(40) ? 0 : random.between(1, 5));
  }
  space.stored_box = random_box_around(random, space.region);
  space.memory_box = random_box_around(random, space.region);
  return space;
}

TEST(Runs, RandomSpacesMatchTheOracle) {
  Seeded random("Runs.RandomSpaces");
  SCOPED_TRACE(random.note());
  int aligned = 0;
  int unaligned = 0;
  for (int round = 0; round < 6000; ++round) {
    const RunSpace space = random_space(random);
    const auto whole = stretches(oracle(space));
    const bool expect_aligned = std::all_of(whole.begin(), whole.end(), [](const auto& s) {
      return s.first.file % 8 == 0 && s.first.memory % 8 == 0 && s.second % 8 == 0;
    });
    ASSERT_EQ(is_byte_aligned(space), expect_aligned) << "round " << round;
    const ByteRange span = file_span(space);
    if (whole.empty()) {
      ASSERT_TRUE(span.begin == 0 && span.end == 0);
    } else {
      ASSERT_EQ(span.begin, whole.front().first.file / 8) << "round " << round;
      ASSERT_EQ(span.end, (whole.back().first.file + whole.back().second + 7) / 8) << "round " << round;
    }
    if (!expect_aligned) {
      EXPECT_THROW(runs_of(space, 0, UINT64_MAX), Error);
      ++unaligned;
      continue;
    }
    ++aligned;
    ASSERT_TRUE(same(runs_of(space, 0, UINT64_MAX), clipped(whole, 0, UINT64_MAX))) << "round " << round;
    for (int i = 0; i < 4; ++i) {
      const std::uint64_t a = random.between(0, span.end + 3);
      const std::uint64_t b = random.between(0, span.end + 3);
      const auto expected = clipped(whole, a, b);
      ASSERT_TRUE(same(runs_of(space, a, b), expected)) << "round " << round << " clip " << a << " " << b;
      const std::uint64_t bytes =
          std::accumulate(expected.begin(), expected.end(), std::uint64_t{0},
                          [](std::uint64_t sum, const plan::Run& run) { return sum + run.length_bytes; });
      ASSERT_EQ(run_bytes(space, a, b), bytes) << "round " << round << " clip " << a << " " << b;
    }
  }
  EXPECT_GT(aligned, 1000);
  EXPECT_GT(unaligned, 100);
}

TEST(Runs, ScalarIsOneRun) {
  const RunSpace space{DType::kF64, {}, 100, {}, {}};
  EXPECT_TRUE(same(runs_of(space, 0, 1000), {{100, 0, 8}}));
  EXPECT_TRUE(same(runs_of(space, 103, 105), {{103, 3, 2}}));
  EXPECT_TRUE(runs_of(space, 108, 200).empty());
}

TEST(Runs, RowsThatFillBothBoxesAreOneRun) {
  const RunSpace space{DType::kBF16, {{0, 0}, {100, 8}}, 64, {{10, 0}, {50, 8}}, {{20, 0}, {30, 8}}};
  EXPECT_TRUE(same(runs_of(space, 0, UINT64_MAX), {{64 + 20 * 16, 160, 480}}));
}

TEST(Runs, ASingleColumnIsOneRunPerElement) {
  const RunSpace space{DType::kU8, {{0, 0}, {4, 10}}, 0, {{0, 3}, {4, 1}}, {{0, 3}, {4, 1}}};
  EXPECT_TRUE(same(runs_of(space, 10, 30), {{13, 1, 1}, {23, 2, 1}}));
}

TEST(Runs, HugeTensorsByArithmetic) {
  const std::uint64_t rows = 1ULL << 40;
  const std::uint64_t columns = 1ULL << 21;  // 2^61 elements of 4 bytes: 2^63 bytes
  const RunSpace space{DType::kF32, {{0, 0}, {rows, columns}}, 4096, {{0, 5}, {rows, 7}}, {{0, 5}, {rows, 7}}};
  const std::uint64_t last_row = 4096 + (rows - 1) * columns * 4 + 20;
  EXPECT_EQ(file_span(space).begin, 4116U);
  EXPECT_EQ(file_span(space).end, last_row + 28);
  EXPECT_TRUE(same(runs_of(space, last_row - 1, UINT64_MAX), {{last_row, (rows - 1) * 28, 28}}));
  EXPECT_TRUE(same(runs_of(space, last_row + 3, last_row + 4), {{last_row + 3, (rows - 1) * 28 + 3, 1}}));
  EXPECT_EQ(run_bytes(space, 0, UINT64_MAX), rows * 28);
  EXPECT_EQ(run_bytes(space, 4096 + columns * 4, 4096 + 3 * columns * 4), 56U);

  const RunSpace line{DType::kU8, {{0}, {1ULL << 63}}, 8, {{(1ULL << 63) - 10}, {10}}, {{(1ULL << 63) - 6}, {3}}};
  EXPECT_TRUE(same(runs_of(line, 0, UINT64_MAX), {{(1ULL << 63) + 2, 4, 3}}));

  const RunSpace packed{DType::kF4, {{0}, {UINT64_MAX - 1}}, 0, {{0}, {UINT64_MAX - 1}}, {{2}, {UINT64_MAX - 5}}};
  EXPECT_EQ(run_bytes(packed, 0, UINT64_MAX), (UINT64_MAX - 5) / 2);
  RunSpace overflowing = line;
  overflowing.stored_offset = UINT64_MAX - 5;
  EXPECT_THROW(runs_of(overflowing, 0, UINT64_MAX), Error);
  overflowing.dtype = DType::kF64;
  EXPECT_THROW(file_span(overflowing), Error);
}

TEST(Runs, ClipIsFoundWithoutWalking) {
  const std::uint64_t rows = 50'000'000;
  const RunSpace space{DType::kBF16, {{0, 0}, {rows, 64}}, 0, {{0, 0}, {rows, 8}}, {{0, 0}, {rows, 8}}};
  plan_test::Stopwatch watch;
  std::uint64_t visited = 0;
  for (std::uint64_t i = 0; i < 20'000; ++i) {
    const std::uint64_t at = (i * 2'499 % rows) * 128;
    for_each_run(space, at, at + 256, [&](const plan::Run& run) { visited += run.length_bytes; });
    visited -= run_bytes(space, at, at + 256);
  }
  const double took = watch.milliseconds();
  EXPECT_EQ(visited, 0U);
  std::cout << "20,000 clips of a region of 50 million rows: " << took << " ms\n";
  EXPECT_LT(took, plan_test::limit_ms(2000));
}

TEST(Runs, RefusesARegionOutsideItsBoxes) {
  const Box whole{{0, 0}, {4, 4}};
  const Box part{{2, 2}, {2, 2}};
  EXPECT_THROW(runs_of({DType::kU8, part, 0, whole, {{1, 2}, {1, 1}}}, 0, 99), Error);
  EXPECT_THROW(runs_of({DType::kU8, whole, 0, part, {{2, 2}, {3, 1}}}, 0, 99), Error);
  EXPECT_THROW(run_bytes({DType::kU8, whole, 0, {{0}, {16}}, whole}, 0, 99), Error);
  EXPECT_NO_THROW(runs_of({DType::kU8, whole, 0, part, {{2, 2}, {0, 1}}}, 0, 99));
}

}  // namespace
}  // namespace cairn::plan
