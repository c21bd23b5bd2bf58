// Coverage compared with an oracle that marks every element, on valid layouts and on the same layouts with one error.
#include "plan/coverage.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>
#include <map>
#include <set>

#include "cairn/error.hpp"
#include "layouts.hpp"
#include "plan/runs.hpp"
#include "seeded.hpp"
#include "shard/box_math.hpp"
#include "stopwatch.hpp"

namespace cairn::plan {
namespace {

using plan_test::Seeded;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

CatalogTensor tensor_of(std::vector<std::uint64_t> shape, DType dtype = DType::kF32) {
  return {"model", "w", dtype, std::move(shape)};
}

std::string error_of(const CatalogTensor& tensor, const std::vector<Piece>& claims) {
  try {
    provide(tensor, claims, 1, 0);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kState);
    EXPECT_THAT(error.what(), Not(HasSubstr("\n")));
    return error.what();
  }
  return "no error";
}

/// Adds 1 to the count of each element of the box.
void mark(const std::vector<std::uint64_t>& shape, const Box& box, std::vector<int>& counts) {
  for (std::uint64_t i = 0; i < counts.size(); ++i) {
    std::uint64_t rest = i;
    bool inside = true;
    for (std::size_t d = shape.size(); d-- > 0;) {
      const std::uint64_t at = rest % shape[d];
      rest /= shape[d];
      inside = inside && at >= box.offset[d] && at - box.offset[d] < box.shape[d];
    }
    if (inside) ++counts[i];
  }
}

bool lies_inside(const Box& inner, const Box& outer) { return shard::intersect(inner, outer) == inner; }

TEST(Coverage, RandomLayoutsProvideEveryElementOnce) {
  Seeded random("Coverage.RandomLayouts");
  SCOPED_TRACE(random.note());
  std::uint64_t elements = 0;
  for (int round = 0; round < 1500; ++round) {
    const auto shape = plan_test::random_shape(random, 4, 9);
    const CatalogTensor tensor = tensor_of(shape);
    const int ranks = static_cast<int>(random.between(1, 64));
    const auto claims = plan_test::random_claims(random, shape, ranks);
    const std::uint64_t share = random.between(1, 200);
    const auto provisions = provide(tensor, claims, share, random.between(0, UINT64_MAX));
    std::vector<int> counts(shard::elements_of(shape));
    for (const Piece& p : provisions) {
      mark(shape, p.box, counts);
      ASSERT_FALSE(shard::is_empty(p.box));
      ASSERT_TRUE(std::any_of(
          claims.begin(), claims.end(),
          [&](const Piece& c) { return c.rank == p.rank && c.local == p.local && lies_inside(p.box, c.box); }))
          << "round " << round;
    }
    ASSERT_TRUE(std::all_of(counts.begin(), counts.end(), [](int n) { return n == 1; })) << "round " << round;
    elements += counts.size();
  }
  EXPECT_GT(elements, 10'000U);
}

TEST(Coverage, TheOrderOfClaimsDoesNotMatter) {
  Seeded random("Coverage.TheOrderOfClaims");
  SCOPED_TRACE(random.note());
  for (int round = 0; round < 100; ++round) {
    const auto shape = plan_test::random_shape(random, 3, 8);
    auto claims = plan_test::random_claims(random, shape, 12);
    const auto first = provide(tensor_of(shape), claims, 16, 7);
    std::shuffle(claims.begin(), claims.end(), random.engine());
    const auto second = provide(tensor_of(shape), claims, 16, 7);
    ASSERT_EQ(first.size(), second.size());
    for (std::size_t i = 0; i < first.size(); ++i) {
      ASSERT_EQ(first[i].rank, second[i].rank);
      ASSERT_EQ(first[i].local, second[i].local);
      ASSERT_EQ(first[i].box, second[i].box);
    }
  }
}

TEST(Tiling, RandomBoxesMatchTheOracle) {
  Seeded random("Tiling.RandomBoxes");
  SCOPED_TRACE(random.note());
  int overlaps = 0;
  int holes = 0;
  int clean = 0;
  for (int round = 0; round < 6000; ++round) {
    const std::vector<std::uint64_t> shape = {random.between(1, 6), random.between(1, 6), random.between(1, 3)};
    auto boxes = plan_test::random_partition(random, shape);
    if (random.one_in(2)) boxes.erase(boxes.begin() + static_cast<std::ptrdiff_t>(random.between(0, boxes.size() - 1)));
    if (random.one_in(3)) {
      Box extra = shard::whole(shape);
      for (std::size_t d = 0; d < 3; ++d) {
        extra.offset[d] = random.between(0, shape[d] - 1);
        extra.shape[d] = random.between(1, shape[d] - extra.offset[d]);
      }
      if (std::find(boxes.begin(), boxes.end(), extra) == boxes.end()) boxes.push_back(extra);
    }
    std::vector<int> counts(shard::elements_of(shape));
    for (const Box& box : boxes) mark(shape, box, counts);
    const Tiling tiling = check_tiling(shard::whole(shape), boxes);
    const bool has_overlap = std::any_of(counts.begin(), counts.end(), [](int n) { return n > 1; });
    ASSERT_EQ(tiling.overlap.has_value(), has_overlap) << "round " << round;
    if (has_overlap) {
      ++overlaps;
      ASSERT_NE(tiling.overlap->first, tiling.overlap->second);
      ASSERT_TRUE(shard::intersect(boxes[tiling.overlap->first], boxes[tiling.overlap->second]));
      continue;
    }
    for (const Box& hole : tiling.holes) mark(shape, hole, counts);
    ASSERT_TRUE(std::all_of(counts.begin(), counts.end(), [](int n) { return n == 1; })) << "round " << round;
    (tiling.holes.empty() ? clean : holes) += 1;
  }
  EXPECT_GT(overlaps, 200);
  EXPECT_GT(holes, 200);
  EXPECT_GT(clean, 200);
}

TEST(Tiling, APinwheelIsATiling) {
  const std::vector<Box> wheel = {
      {{0, 0}, {1, 2}}, {{0, 2}, {2, 1}}, {{2, 1}, {1, 2}}, {{1, 0}, {2, 1}}, {{1, 1}, {1, 1}}};
  const Box region{{0, 0}, {3, 3}};
  EXPECT_TRUE(check_tiling(region, wheel).holes.empty());
  EXPECT_FALSE(check_tiling(region, wheel).overlap);
  const std::vector<Box> no_hub(wheel.begin(), wheel.end() - 1);
  EXPECT_EQ(check_tiling(region, no_hub).holes, (std::vector<Box>{{{1, 1}, {1, 1}}}));
}

TEST(Coverage, NamesTheFirstMissingElements) {
  const CatalogTensor tensor{"model", "model.embed.weight", DType::kBF16, {8, 16}};
  EXPECT_EQ(error_of(tensor, {{0, 0, 0, {{0, 0}, {8, 8}}}, {0, 0, 3, {{4, 8}, {4, 8}}}}),
            "tensor 'model.embed.weight' (section model): elements [0:4, 8:16] are held by no rank");
  EXPECT_EQ(error_of(tensor, {}),
            "tensor 'model.embed.weight' (section model): elements [0:8, 0:16] are held by no rank");
  EXPECT_EQ(error_of(tensor, {{0, 0, 0, {{2, 3}, {1, 1}}}}),
            "tensor 'model.embed.weight' (section model): elements [0:2, 0:16] are held by no rank (and 3 more boxes)");
  EXPECT_EQ(error_of({"optimizer", "step", DType::kF32, {}}, {}),
            "tensor 'step' (section optimizer): elements [] are held by no rank");
}

TEST(Coverage, NamesWhoOverlapsWhere) {
  EXPECT_EQ(
      error_of(tensor_of({20}), {{0, 0, 5, {{8}, {12}}}, {0, 0, 3, {{0}, {10}}}}),
      "tensor 'w' (section model) overlaps: rank 3 holds [0:10] and rank 5 holds [8:20], both hold [8:10]; replicas "
      "must be equal boxes");
  EXPECT_THAT(error_of(tensor_of({20}), {{0, 0, 0, {{0}, {20}}}, {0, 0, 1, {{4}, {2}}}}),
              AllOf(HasSubstr("rank 0 holds [0:20]"), HasSubstr("rank 1 holds [4:6]"), HasSubstr("both hold [4:6]")));
  EXPECT_THAT(error_of(tensor_of({4, 4}), {{0, 0, 2, {{0, 0}, {3, 3}}}, {0, 1, 2, {{1, 1}, {3, 3}}}}),
              HasSubstr("rank 2 holds [0:3, 0:3] and rank 2 holds [1:4, 1:4], both hold [1:3, 1:3]"));
}

TEST(Coverage, RefusesBoxesOutsideTheTensor) {
  EXPECT_EQ(error_of(tensor_of({8}), {{0, 0, 7, {{4}, {5}}}}),
            "tensor 'w' (section model): rank 7 holds [4:9], which is not inside the tensor [0:8]");
  EXPECT_THAT(error_of(tensor_of({8}), {{0, 0, 7, {{0, 0}, {8, 1}}}}), HasSubstr("rank 7 holds [0:8, 0:1]"));
  EXPECT_THAT(error_of(tensor_of({8}), {{0, 0, 7, {{0}, {8, 1}}}}), HasSubstr("1 offsets and 2 sizes"));
  EXPECT_THAT(error_of(tensor_of({8}), {{0, 0, 7, {{UINT64_MAX}, {2}}}}), HasSubstr("rank 7"));
}

TEST(Coverage, PackedTypesAreCutBetweenBytesOnly) {
  const CatalogTensor odd = tensor_of({2, 6}, DType::kF4);
  EXPECT_THAT(error_of(odd, {{0, 0, 0, {{0, 0}, {2, 3}}}, {0, 0, 1, {{0, 3}, {2, 3}}}}),
              HasSubstr(" is packed (F4): rank 0 holds [0:2, 0:3], which begins or ends inside a byte"));
  EXPECT_EQ(provide(odd, {{0, 0, 0, {{0, 0}, {2, 2}}}, {0, 0, 1, {{0, 2}, {2, 4}}}}, 1, 0).size(), 2U);
  // Shares of replicas: [2, 5] of F4 cannot be cut, since its rows have 2.5 bytes; [9, 4] of F6E2M3 is cut by rows.
  EXPECT_EQ(
      provide(tensor_of({2, 5}, DType::kF4), {{0, 0, 0, {{0, 0}, {2, 5}}}, {0, 0, 1, {{0, 0}, {2, 5}}}}, 1, 0).size(),
      1U);
  const auto rows =
      provide(tensor_of({9, 4}, DType::kF6E2M3), {{0, 0, 0, {{0, 0}, {9, 4}}}, {0, 0, 1, {{0, 0}, {9, 4}}}}, 1, 0);
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[0].box, (Box{{0, 0}, {4, 4}}));
  EXPECT_EQ(rows[1].box, (Box{{4, 0}, {5, 4}}));
}

TEST(Coverage, ReplicasShareLargeBoxes) {
  const CatalogTensor tensor = tensor_of({2, 12});
  std::vector<Piece> claims;
  for (int rank = 0; rank < 3; ++rank) claims.push_back({0, 5, rank, {{0, 0}, {2, 12}}});
  claims.push_back({0, 9, 1, {{0, 0}, {2, 12}}});  // the same box a second time
  const auto shared = provide(tensor, claims, 32, 1);
  ASSERT_EQ(shared.size(), 3U);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(shared[i].rank, static_cast<int>(i));
    EXPECT_EQ(shared[i].local, 5U);
    EXPECT_EQ(shared[i].box, (Box{{0, 4 * i}, {2, 4}}));
  }
  EXPECT_EQ(provide(tensor, claims, 33, 1).size(), 1U);
}

TEST(Coverage, SharesDifferByOneIndexAtMost) {
  std::vector<Piece> claims;
  for (int rank = 0; rank < 4; ++rank) claims.push_back({0, 0, rank, {{0}, {11}}});
  std::vector<std::uint64_t> sizes;
  for (const Piece& p : provide(tensor_of({11}), claims, 1, 0)) sizes.push_back(p.box.shape[0]);
  EXPECT_THAT(sizes, testing::ElementsAre(3, 3, 3, 2));
}

TEST(Coverage, SmallTensorsSpreadOverTheHolders) {
  std::vector<Piece> claims;
  for (int rank = 0; rank < 8; ++rank) claims.push_back({0, 0, rank, {{0}, {4}}});
  std::map<int, int> chosen;
  for (std::uint64_t salt = 0; salt < 800; ++salt) ++chosen[provide(tensor_of({4}), claims, 1 << 20, salt).at(0).rank];
  ASSERT_EQ(chosen.size(), 8U);
  for (const auto& [rank, times] : chosen) EXPECT_NEAR(times, 100, 50) << "rank " << rank;
}

TEST(Coverage, EmptyTensorsAndEmptyBoxes) {
  EXPECT_TRUE(provide(tensor_of({0, 4}), {{0, 0, 0, {{0, 0}, {0, 4}}}}, 1, 0).empty());
  EXPECT_TRUE(provide(tensor_of({0, 4}), {}, 1, 0).empty());
  const auto one = provide(tensor_of({4}), {{0, 0, 0, {{4}, {0}}}, {0, 2, 1, {{0}, {4}}}}, 1, 0);
  ASSERT_EQ(one.size(), 1U);
  EXPECT_EQ(one[0].rank, 1);
  const auto scalar = provide(tensor_of({}), {{0, 0, 4, {}}, {0, 0, 9, {}}}, 1, 3);
  ASSERT_EQ(scalar.size(), 1U);
  EXPECT_TRUE(scalar[0].rank == 4 || scalar[0].rank == 9);
}

double milliseconds_of(const CatalogTensor& tensor, std::vector<Piece> claims, std::size_t expected) {
  plan_test::Stopwatch watch;
  const auto provisions = provide(tensor, std::move(claims), 1 << 20, 0);
  const double took = watch.milliseconds();
  EXPECT_EQ(provisions.size(), expected);
  return took;
}

TEST(Coverage, SixteenThousandRanks) {
  constexpr int kRanks = 16384;
  const CatalogTensor tensor = tensor_of({128'256, 16'384}, DType::kBF16);
  const auto report = [&](const char* what, double milliseconds) {
    std::cout << "16,384 claims, " << what << ": " << milliseconds << " ms\n";
    EXPECT_LT(milliseconds, plan_test::limit_ms(500));
  };
  std::vector<Piece> flat;
  const std::uint64_t each = shard::elements_of(tensor.shape) / kRanks;
  for (int rank = 0; rank < kRanks; ++rank) {
    const auto begin = static_cast<std::uint64_t>(rank) * each;
    std::uint32_t local = 0;
    for (Box& box : shard::boxes_of_flat_range(tensor.shape, begin, begin + each))
      flat.push_back({0, local++, rank, box});
  }
  const std::size_t flat_boxes = flat.size();
  report("flat ranges", milliseconds_of(tensor, flat, flat_boxes));
  std::vector<Piece> grid;
  for (std::uint64_t r = 0; r < 128; ++r) {
    for (std::uint64_t c = 0; c < 128; ++c) {
      grid.push_back({0, 0, static_cast<int>(r * 128 + c), {{r * 1002, c * 128}, {1002, 128}}});
    }
  }
  report("a grid of 128 x 128", milliseconds_of(tensor, grid, grid.size()));
  std::vector<Piece> replicas;
  for (int rank = 0; rank < kRanks; ++rank) {
    replicas.push_back({0, 0, rank, {{static_cast<std::uint64_t>(rank % 8) * 16'032, 0}, {16'032, 16'384}}});
  }
  report("8 boxes x 2048 replicas", milliseconds_of(tensor, replicas, 8));
  grid.erase(grid.begin() + 5'000);
  EXPECT_THAT(error_of(tensor, grid), HasSubstr("elements [39078:40080, 1024:1152] are held by no rank"));
}

}  // namespace
}  // namespace cairn::plan
