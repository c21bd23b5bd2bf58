// Runs compared with a naive walk over elements and bits, from any position and in any clip; sizes that cannot be
// allocated are checked by arithmetic alone.
#include "plan/runs.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>
#include <utility>
#include <vector>

#include "cairn/error.hpp"
#include "plan/strides.hpp"
#include "seeded.hpp"
#include "stopwatch.hpp"

namespace cairn::plan {
namespace {

using plan_test::Seeded;

/// A region, and the boxes in which it lies.
struct Case {
  DType dtype = DType::kF32;
  format::StoredBox stored;
  Box memory_box;
  Box region;
  std::vector<std::uint64_t> strides = {};  // strides of the memory box; empty: no gaps

  Runs runs() const {
    return strides.empty() ? runs_of(dtype, stored, memory_box, region)
                           : runs_of(dtype, stored, MemoryBox{0, memory_box, {}, Memory::kHost, strides}, region);
  }
};

struct Bits {
  std::uint64_t file = 0;
  std::uint64_t memory = 0;
};

/// Element number in a box whose rows begin `row_elems` elements apart; 0: without gaps.
std::uint64_t element_in(const Box& box, const std::vector<std::uint64_t>& index, std::uint64_t row_elems = 0) {
  std::uint64_t flat = 0;
  for (std::size_t d = 0; d < index.size(); ++d) {
    const bool is_row = d + 1 == index.size() && row_elems != 0;
    flat = flat * (is_row ? row_elems : box.shape[d]) + (index[d] - box.offset[d]);
  }
  return flat;
}

std::uint64_t element_in_memory(const Case& c, const std::vector<std::uint64_t>& index) {
  if (c.strides.empty()) return element_in(c.memory_box, index);
  std::uint64_t at = 0;
  for (std::size_t d = 0; d < index.size(); ++d) at += (index[d] - c.memory_box.offset[d]) * c.strides[d];
  return at;
}

/// Position of every bit of the region, element by element in row-major order.
std::vector<Bits> oracle(const Case& c) {
  std::vector<Bits> out;
  const std::size_t rank = c.region.shape.size();
  std::uint64_t count = 1;
  for (const auto n : c.region.shape) count *= n;
  for (std::uint64_t i = 0; i < count; ++i) {
    std::vector<std::uint64_t> index(rank);
    std::uint64_t rest = i;
    for (std::size_t d = rank; d-- > 0;) {
      index[d] = c.region.offset[d] + rest % c.region.shape[d];
      rest /= c.region.shape[d];
    }
    for (unsigned b = 0; b < bits_of(c.dtype); ++b) {
      out.push_back(
          {c.stored.offset_bytes * 8 + element_in(c.stored.box, index, c.stored.row_elems) * bits_of(c.dtype) + b,
           element_in_memory(c, index) * bits_of(c.dtype) + b});
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

std::vector<Run> visited(const Runs& runs, std::uint64_t begin, std::uint64_t end) {
  std::vector<Run> out;
  for_each_run(runs, begin, end, [&](const Run& run) { out.push_back(run); });
  return out;
}

std::vector<Run> visited(const Runs& runs) {
  std::vector<Run> out;
  for_each_run(runs, [&](const Run& run) { out.push_back(run); });
  return out;
}

std::uint64_t bytes_in(const Runs& runs, std::uint64_t begin, std::uint64_t end) {
  return runs.bytes_before(end) - runs.bytes_before(begin);
}

using Offsets = std::vector<std::pair<std::uint64_t, std::uint64_t>>;  // offsets of each byte in the file and in memory

void add_bytes(Offsets& out, const Run& run) {
  for (std::uint64_t i = 0; i < run.length_bytes; ++i) out.emplace_back(run.file_offset + i, run.memory_offset + i);
}

/// The offsets that a cursor visits.
Offsets walked(const Runs& runs, std::uint64_t first, std::uint64_t bytes) {
  Offsets out;
  for (RunCursor cursor(runs, first, bytes); !cursor.done();) {
    const RunBatch batch = cursor.next();
    for (std::uint64_t r = 0; r < batch.count; ++r) {
      add_bytes(out, {batch.file_offset + r * batch.file_stride, batch.memory_offset + r * batch.memory_stride,
                      batch.length_bytes});
    }
  }
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

/// Joins runs that are adjacent on both sides.
std::vector<Run> joined(const std::vector<Run>& runs) {
  std::vector<Run> out;
  for (const Run& run : runs) {
    if (!out.empty() && out.back().file_offset + out.back().length_bytes == run.file_offset &&
        out.back().memory_offset + out.back().length_bytes == run.memory_offset) {
      out.back().length_bytes += run.length_bytes;
    } else {
      out.push_back(run);
    }
  }
  return out;
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

Case random_case(Seeded& random) {
  static constexpr DType kTypes[] = {DType::kF4, DType::kF6E2M3, DType::kU8, DType::kBF16, DType::kF32, DType::kC64};
  Case c;
  c.dtype = kTypes[random.between(0, 5)];
  c.stored.file = static_cast<std::uint32_t>(random.between(0, 9));
  c.stored.offset_bytes = random.between(0, 40);
  const std::uint64_t rank = random.between(0, 4);
  for (std::uint64_t d = 0; d < rank; ++d) {
    c.region.offset.push_back(random.between(0, 3));
    c.region.shape.push_back(random.one_in(40) ? 0 : random.between(1, 5));
  }
  c.stored.box = random_box_around(random, c.region);
  if (rank > 0 && random.one_in(3)) c.stored.row_elems = c.stored.box.shape.back() + random.between(1, 5);
  c.memory_box = random_box_around(random, c.region);
  if (bits_of(c.dtype) >= 8 && random.one_in(2)) {
    c.strides.resize(rank);
    std::uint64_t span = 1;
    for (std::size_t d = rank; d-- > 0;) {
      const std::uint64_t length = c.memory_box.shape[d];
      c.strides[d] = length <= 1 ? random.between(0, 9) : span == 1 ? 1 : span + random.between(0, 4) / 2;
      if (length > 1) span += (length - 1) * c.strides[d];
    }
  }
  return c;
}

TEST(Runs, RandomRegionsMatchTheNaiveWalker) {
  Seeded random("Runs.RandomRegions");
  SCOPED_TRACE(random.note());
  int aligned = 0;
  int unaligned = 0;
  for (int round = 0; round < 6000; ++round) {
    const Case c = random_case(random);
    const auto whole = stretches(oracle(c));
    const bool expect_aligned = std::all_of(whole.begin(), whole.end(), [](const auto& s) {
      return s.first.file % 8 == 0 && s.first.memory % 8 == 0 && s.second % 8 == 0;
    });
    ASSERT_EQ(is_byte_aligned(c.dtype, c.stored, c.memory_box, c.region), expect_aligned) << "round " << round;
    const FileRange span = file_span(c.dtype, c.stored, c.region);
    if (whole.empty()) {
      ASSERT_TRUE(span.begin == 0 && span.end == 0);
      ASSERT_EQ(c.runs().bytes, 0U);
      ASSERT_EQ(c.runs().bytes_before(UINT64_MAX), 0U);
      ASSERT_TRUE(visited(c.runs()).empty());
      ASSERT_TRUE(RunCursor(c.runs(), 0, 0).done());
      continue;
    }
    ASSERT_EQ(span.begin, whole.front().first.file / 8) << "round " << round;
    ASSERT_EQ(span.end, (whole.back().first.file + whole.back().second + 7) / 8) << "round " << round;
    if (!expect_aligned) {
      EXPECT_THROW(c.runs(), Error);
      ++unaligned;
      continue;
    }
    ++aligned;
    const Runs runs = c.runs();
    ASSERT_EQ(runs.file, c.stored.file);
    ASSERT_EQ(runs.file_begin, span.begin);
    ASSERT_EQ(runs.file_end(), span.end);
    ASSERT_EQ(runs.memory_end(), (whole.back().first.memory + whole.back().second) / 8) << "round " << round;
    // With strides the last row of a plane may end where the next plane begins.
    const auto found = [&](const std::vector<plan::Run>& list) { return c.strides.empty() ? list : joined(list); };
    ASSERT_TRUE(same(found(visited(runs)), clipped(whole, 0, UINT64_MAX))) << "round " << round;
    for (int i = 0; i < 4; ++i) {
      const std::uint64_t a = random.between(0, span.end + 3);
      const std::uint64_t b = random.between(a, span.end + 3);
      const auto expected = clipped(whole, a, b);
      ASSERT_TRUE(same(found(visited(runs, a, b)), expected)) << "round " << round << " clip " << a << " " << b;
      Offsets bytes;
      for (const plan::Run& run : expected) add_bytes(bytes, run);
      ASSERT_EQ(bytes_in(runs, a, b), bytes.size()) << "round " << round << " clip " << a << " " << b;
      const std::uint64_t first = runs.bytes_before(a);
      const std::uint64_t cut = random.between(0, bytes.size());
      Offsets halves = walked(runs, first, cut);
      const Offsets rest = walked(runs, first + cut, bytes.size() - cut);
      halves.insert(halves.end(), rest.begin(), rest.end());
      ASSERT_EQ(halves, bytes) << "round " << round << " clip " << a << " " << b << " cut at byte " << cut;
    }
    ASSERT_TRUE(visited(runs, span.end, span.begin).empty()) << "a clip that ends before it begins";
  }
  EXPECT_GT(aligned, 1000);
  EXPECT_GT(unaligned, 100);
}

TEST(Runs, ScalarIsOneRun) {
  const Runs runs = runs_of(DType::kF64, {0, 100, {}}, Box{}, {});
  EXPECT_TRUE(same(visited(runs), {{100, 0, 8}}));
  EXPECT_TRUE(same(visited(runs, 103, 105), {{103, 3, 2}}));
  EXPECT_TRUE(visited(runs, 108, 200).empty());
  EXPECT_EQ(walked(runs, 1, 2), (Offsets{{101, 1}, {102, 2}}));
}

TEST(Runs, RowsThatFillBothBoxesAreOneRun) {
  const Runs runs = runs_of(DType::kBF16, {0, 64, {{0, 0}, {100, 8}}}, {{10, 0}, {50, 8}}, {{20, 0}, {30, 8}});
  EXPECT_TRUE(same(visited(runs), {{64 + 20 * 16, 160, 480}}));
  EXPECT_EQ(runs.depth, 0U);
}

TEST(Runs, ASingleColumnIsOneRunPerElement) {
  const Runs runs = runs_of(DType::kU8, {0, 0, {{0, 0}, {4, 10}}}, {{0, 3}, {4, 1}}, {{0, 3}, {4, 1}});
  EXPECT_TRUE(same(visited(runs, 10, 30), {{13, 1, 1}, {23, 2, 1}}));
}

TEST(Runs, ColumnsAreHandedOutInOneBatch) {
  const Box columns{{0, 1024}, {1000, 1024}};
  const Runs runs = runs_of(DType::kBF16, {0, 8, {{0, 0}, {1000, 4096}}}, columns, columns);
  EXPECT_EQ(runs.run_bytes, 2048U);
  RunCursor cursor(runs, 0, runs.bytes);
  const RunBatch all = cursor.next();
  EXPECT_TRUE(cursor.done());
  EXPECT_EQ(all.count, 1000U);
  EXPECT_EQ(all.file_offset, 8U + 2048U);
  EXPECT_EQ(all.file_stride, 8192U);
  EXPECT_EQ(all.memory_stride, 2048U);
}

/// The region has two of three elements in each dimension, so no dimensions merge: the largest number of levels.
TEST(Runs, EightDimensionsFitTheLevels) {
  Box stored{{0, 0, 0, 0, 0, 0, 0, 0}, {3, 3, 3, 3, 3, 3, 3, 3}};
  const Box region{{0, 0, 0, 0, 0, 0, 0, 0}, {2, 2, 2, 2, 2, 2, 2, 2}};
  const Runs runs = runs_of(DType::kU8, {0, 0, stored}, region, region);
  EXPECT_EQ(runs.depth, Runs::kMaxDepth);
  EXPECT_EQ(visited(runs).size(), 128U);
  Box thin = region;
  thin.shape.back() = 1;
  EXPECT_EQ(runs_of(DType::kU8, {0, 0, stored}, thin, thin).depth, Runs::kMaxDepth);
  for (auto* values : {&stored.offset, &stored.shape}) values->push_back(1);
  EXPECT_THROW(runs_of(DType::kU8, {0, 0, stored}, stored, stored), Error);
}

TEST(Runs, HugeTensorsByArithmetic) {
  const std::uint64_t rows = 1ULL << 40;
  const std::uint64_t columns = 1ULL << 21;  // 2^61 elements of 4 bytes: 2^63 bytes
  const Box seven{{0, 5}, {rows, 7}};
  const Runs runs = runs_of(DType::kF32, {0, 4096, {{0, 0}, {rows, columns}}}, seven, seven);
  const std::uint64_t last_row = 4096 + (rows - 1) * columns * 4 + 20;
  EXPECT_EQ(runs.file_begin, 4116U);
  EXPECT_EQ(runs.file_end(), last_row + 28);
  EXPECT_TRUE(same(visited(runs, last_row - 1, UINT64_MAX), {{last_row, (rows - 1) * 28, 28}}));
  EXPECT_TRUE(same(visited(runs, last_row + 3, last_row + 4), {{last_row + 3, (rows - 1) * 28 + 3, 1}}));
  EXPECT_EQ(runs.bytes, rows * 28);
  EXPECT_EQ(bytes_in(runs, 4096 + columns * 4, 4096 + 3 * columns * 4), 56U);
  RunCursor cursor(runs, (rows - 1) * 28 + 7, 2);
  const RunBatch batch = cursor.next();
  EXPECT_EQ(batch.file_offset, last_row + 7);
  EXPECT_EQ(batch.memory_offset, (rows - 1) * 28 + 7);
  EXPECT_EQ(batch.length_bytes, 2U);

  Case line{DType::kU8, {0, 8, {{0}, {1ULL << 63}}}, {{(1ULL << 63) - 10}, {10}}, {{(1ULL << 63) - 6}, {3}}};
  EXPECT_TRUE(same(visited(line.runs()), {{(1ULL << 63) + 2, 4, 3}}));

  const Box packed{{0}, {UINT64_MAX - 1}};
  EXPECT_EQ(runs_of(DType::kF4, {0, 0, packed}, packed, {{2}, {UINT64_MAX - 5}}).bytes, (UINT64_MAX - 5) / 2);
  line.stored.offset_bytes = UINT64_MAX - 5;
  EXPECT_THROW(line.runs(), Error);
  EXPECT_THROW(file_span(DType::kU8, line.stored, line.region), Error);
  line.dtype = DType::kF64;
  EXPECT_THROW(line.runs(), Error);
  EXPECT_THROW(file_span(DType::kF64, line.stored, line.region), Error);
  const Box sixteen{{0}, {16}};
  EXPECT_NO_THROW(runs_of(DType::kU8, {0, UINT64_MAX - 16, sixteen}, sixteen, sixteen));
  EXPECT_THROW(runs_of(DType::kU8, {0, UINT64_MAX - 15, sixteen}, sixteen, sixteen), Error) << "it ends at 2^64";
}

TEST(Runs, ClipIsFoundWithoutWalking) {
  const std::uint64_t rows = 50'000'000;
  const Box part{{0, 0}, {rows, 8}};
  const Runs runs = runs_of(DType::kBF16, {0, 0, {{0, 0}, {rows, 64}}}, part, part);
  plan_test::Stopwatch watch;
  std::uint64_t seen = 0;
  for (std::uint64_t i = 0; i < 20'000; ++i) {
    const std::uint64_t at = (i * 2'499 % rows) * 128;
    for_each_run(runs, at, at + 256, [&](const plan::Run& run) { seen += run.length_bytes; });
    seen -= bytes_in(runs, at, at + 256);
  }
  const double took = watch.milliseconds();
  EXPECT_EQ(seen, 0U);
  std::cout << "20,000 clips of a region of 50 million rows: " << took << " ms\n";
  EXPECT_LT(took, plan_test::limit_ms(2000));
}

TEST(Runs, RefusesWhatCannotBe) {
  const Box whole{{0, 0}, {4, 4}};
  const Box part{{2, 2}, {2, 2}};
  EXPECT_THROW(runs_of(DType::kU8, {0, 0, part}, whole, {{1, 2}, {1, 1}}), Error);
  EXPECT_THROW(runs_of(DType::kU8, {0, 0, whole}, part, {{2, 2}, {3, 1}}), Error);
  EXPECT_THROW(runs_of(DType::kU8, {0, 0, whole}, {{0}, {16}}, whole), Error);
  EXPECT_NO_THROW(runs_of(DType::kU8, {0, 0, whole}, part, {{2, 2}, {0, 1}}));
  EXPECT_THROW(file_span(DType::kU8, {0, 0, part}, whole), Error);
  const Box eight{{0}, {8}};
  EXPECT_THROW(runs_of(DType::kF4, {0, 0, eight}, eight, {{1}, {4}}), Error) << "cuts a byte";
  EXPECT_NO_THROW(runs_of(DType::kF4, {0, 0, eight}, eight, {{2}, {4}}));
  const Runs runs = runs_of(DType::kU8, {0, 0, eight}, eight, eight);
  EXPECT_THROW(RunCursor(runs, 7, 2), Error) << "more than there is";
  EXPECT_THROW(RunCursor(runs, 9, 0), Error);
}

TEST(Strides, EachIsAtLeastTheSpanOfTheDimensionsInside) {
  using Numbers = std::vector<std::uint64_t>;
  const auto problem = [](const Numbers& shape, const Numbers& strides) { return stride_problem(shape, strides); };
  EXPECT_EQ(problem({4, 6}, {}), "");
  EXPECT_EQ(problem({4, 6}, {6, 1}), "");
  EXPECT_EQ(problem({4, 6}, {7, 1}), "");
  EXPECT_EQ(problem({4, 6, 1}, {6, 1, 999}), "");  // the last dimension does not matter
  EXPECT_EQ(problem({2, 3, 4}, {16, 6, 1}), "");   // rows of 4 in 6, and planes of 2 * 6 + 4
  EXPECT_NE(problem({2, 3, 4}, {15, 6, 1}).find("dimension 0 has stride 15, less than the 16 elements"), UINT64_MAX);
  EXPECT_NE(problem({4, 6}, {12, 2}).find("dimension 1 has stride 2"), UINT64_MAX);
  EXPECT_NE(problem({4, 1}, {2, 1}).find("dimension 0 has stride 2"), UINT64_MAX);
  EXPECT_NE(problem({4, 6}, {1, 6}).find("dimension 1 has stride 6"), UINT64_MAX);  // column-major
  EXPECT_EQ(problem({4, 6}, {1}), "1 strides for 2 dimensions");
  EXPECT_EQ(problem({4, 0}, {0, 0}), "");
  EXPECT_NE(problem({3, 2}, {1ULL << 63, 1}).find("dimension 0 has stride 9223372036854775808, and ends"), UINT64_MAX);
  EXPECT_EQ(span_elements(Numbers{2, 3, 4}, Numbers{16, 6, 1}), 32U);
  EXPECT_EQ(span_elements(Numbers{2, 3, 4}, {}), 24U);
  EXPECT_EQ(span_elements(Numbers{2, 0}, Numbers{5, 1}), 0U);
  EXPECT_EQ(span_elements(Numbers{}, {}), 1U);
  EXPECT_EQ(span_elements(Numbers{1ULL << 40, 1ULL << 40}, {}), std::nullopt);
  EXPECT_TRUE(is_dense(Numbers{4, 1, 6}, Numbers{6, 77, 1}));
  EXPECT_FALSE(is_dense(Numbers{4, 1, 6}, Numbers{7, 77, 1}));
}

}  // namespace
}  // namespace cairn::plan
