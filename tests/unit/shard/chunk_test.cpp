// The chunk rules of one dimension compared with their definitions, with examples from the frameworks' documents.
#include "shard/chunk.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "layout_data.hpp"
#include "shard/name_pattern.hpp"

namespace cairn::shard {
namespace {

using Sizes = std::vector<std::uint64_t>;

Sizes sizes(const ChunkSpec& spec, std::uint64_t n, std::uint64_t ways) {
  Sizes out;
  EXPECT_EQ(chunk_problem(spec, n, ways), "");
  for (std::uint64_t at = 0; at < ways; ++at) out.push_back(size_of(chunk(spec, n, ways, at)));
  return out;
}

ChunkSpec spec_of(ChunkKind kind, std::uint64_t unit = 1) {
  ChunkSpec spec;
  spec.kind = kind;
  spec.unit = unit;
  return spec;
}

TEST(Chunk, TorchExamples) {
  EXPECT_EQ(sizes(spec_of(ChunkKind::kTorch), 9, 8), (Sizes{2, 2, 2, 2, 1, 0, 0, 0}));
  EXPECT_EQ(sizes(spec_of(ChunkKind::kTorch), 10, 4), (Sizes{3, 3, 3, 1}));
  EXPECT_EQ(sizes(spec_of(ChunkKind::kTorch), 0, 3), (Sizes{0, 0, 0}));
  EXPECT_EQ(torch_chunk(~std::uint64_t{0}, 1, 0), (Range{0, ~std::uint64_t{0}}));
}

TEST(Chunk, BalancedExamples) {
  EXPECT_EQ(sizes(spec_of(ChunkKind::kBalanced), 10, 4), (Sizes{3, 3, 2, 2}));
  EXPECT_EQ(sizes(spec_of(ChunkKind::kBalanced, 64), 576, 4), (Sizes{192, 128, 128, 128}));  // 9 heads: 3, 2, 2, 2
  EXPECT_EQ(sizes(spec_of(ChunkKind::kBalanced, 64), 192, 4), (Sizes{64, 64, 64, 0}));
}

TEST(Chunk, EveryRuleTilesEveryDimension) {
  int tiled = 0;
  for (const ChunkKind kind : {ChunkKind::kEven, ChunkKind::kTorch, ChunkKind::kBalanced, ChunkKind::kStrided}) {
    for (std::uint64_t n = 0; n <= 40; ++n) {
      for (std::uint64_t ways = 1; ways <= 16; ++ways) {
        ChunkSpec spec = spec_of(kind);
        spec.split_factor = kind == ChunkKind::kStrided ? 3 : 1;
        if (!chunk_problem(spec, n, ways).empty()) {
          ASSERT_TRUE(kind == ChunkKind::kEven && n % ways != 0);
          continue;
        }
        std::vector<int> seen(n, 0);
        for (std::uint64_t at = 0; at < ways; ++at) {
          for (const Range& range : chunk(spec, n, ways, at)) {
            for (std::uint64_t i = range.begin; i < range.end; ++i) ++seen.at(i);
          }
        }
        ASSERT_EQ(seen, std::vector<int>(n, 1));
        Sizes held = sizes(spec, n, ways);
        std::ranges::sort(held);
        held.erase(std::unique(held.begin(), held.end()), held.end());
        ASSERT_EQ(held_sizes(spec, n, ways), held) << n << " over " << ways;
        ++tiled;
      }
    }
  }
  EXPECT_GT(tiled, 3 * 41 * 16);
}

TEST(Chunk, StridedDiffersFromNestedForFiveRows) {
  // 5 rows, tp 2 then dp 2: (d0,t0) 0..1, (d1,t0) 2, (d0,t1) 3, (d1,t1) 4.
  // Read as _StridedShard(sf=2), dp 0 has 0..1 and 4.
  const ChunkSpec torch = spec_of(ChunkKind::kTorch);
  const auto nested = [&](std::uint64_t dp, std::uint64_t tp) {
    const auto outer = chunk(torch, 5, 2, tp);
    return compose(outer, chunk(torch, size_of(outer), 2, dp));
  };
  EXPECT_EQ(nested(0, 0), (std::vector<Range>{{0, 2}}));
  EXPECT_EQ(nested(1, 0), (std::vector<Range>{{2, 3}}));
  EXPECT_EQ(nested(0, 1), (std::vector<Range>{{3, 4}}));
  EXPECT_EQ(nested(1, 1), (std::vector<Range>{{4, 5}}));
  ChunkSpec strided = spec_of(ChunkKind::kStrided);
  strided.split_factor = 2;
  EXPECT_EQ(chunk(strided, 5, 2, 0), (std::vector<Range>{{0, 2}, {4, 5}}));
  EXPECT_EQ(chunk(strided, 5, 2, 1), (std::vector<Range>{{2, 4}}));
}

TEST(Chunk, RowMaps) {
  ChunkSpec halves;
  halves.equal_parts = 2;  // [gate; up] of 56 rows each over tp=2
  EXPECT_EQ(chunk(halves, 112, 2, 1), (std::vector<Range>{{28, 56}, {84, 112}}));
  EXPECT_EQ(chunk(halves, 112, 1, 0), (std::vector<Range>{{0, 112}}));

  ChunkSpec qkv;  // source [Q;K;V] of 4 q, 2 k and 2 v rows; a rank holds [q q k v] for each of 2 groups
  qkv.parts = {4, 2, 2};
  qkv.interleave = 2;
  EXPECT_EQ(chunk(qkv, 8, 1, 0), (std::vector<Range>{{0, 2}, {4, 5}, {6, 7}, {2, 4}, {5, 6}, {7, 8}}));
  EXPECT_EQ(chunk(qkv, 8, 2, 1), (std::vector<Range>{{2, 4}, {5, 6}, {7, 8}}));

  ChunkSpec fused;  // source interleaved with period 4 = (2 + 1 + 1), a rank holds [Q;K;V]
  fused.parts = {2, 1, 1};
  fused.period = 4;
  EXPECT_EQ(chunk(fused, 8, 1, 0), (std::vector<Range>{{0, 2}, {4, 6}, {2, 3}, {6, 7}, {3, 4}, {7, 8}}));
  EXPECT_EQ(chunk(fused, 8, 2, 0), (std::vector<Range>{{0, 4}}));
}

TEST(Chunk, ExplicitBoundariesAndRows) {
  ChunkSpec spec = spec_of(ChunkKind::kExplicit);
  spec.boundaries = {0, 5, 5, 9};
  EXPECT_EQ(sizes(spec, 9, 3), (Sizes{5, 0, 4}));
  EXPECT_NE(chunk_problem(spec, 10, 3), "");
  EXPECT_NE(chunk_problem(spec, 9, 2), "");
  ChunkSpec rows = spec_of(ChunkKind::kRows);
  rows.rows = {{{4, 6}, {0, 2}}, {{2, 4}}};
  EXPECT_EQ(chunk(rows, 6, 2, 0), (std::vector<Range>{{4, 6}, {0, 2}}));
  EXPECT_NE(chunk_problem(rows, 5, 2), "");
}

TEST(Chunk, ScalesFollowTheirWeight) {
  ChunkSpec spec;
  spec.block = 128;
  spec.scaled = 1024;
  EXPECT_EQ(chunk_problem(spec, 8, 4), "");
  EXPECT_EQ(chunk(spec, 8, 4, 3), (std::vector<Range>{{6, 8}}));
  EXPECT_NE(chunk_problem(spec, 8, 16).find("element 64 of 1024"), std::string::npos);
  spec.scaled = 576;  // 4.5 blocks: a whole row of 5 scales is fine, half of it is not
  EXPECT_EQ(chunk(spec, 5, 1, 0), (std::vector<Range>{{0, 5}}));
  EXPECT_NE(chunk_problem(spec, 5, 2), "");
}

TEST(Chunk, ProblemsSayWhatIsWrong) {
  EXPECT_EQ(chunk_problem(spec_of(ChunkKind::kEven), 576, 5), "576 does not divide by 5");
  EXPECT_EQ(chunk_problem(spec_of(ChunkKind::kEven, 64), 576, 2), "9 units of 64 do not divide by 2");
  EXPECT_EQ(chunk_problem(spec_of(ChunkKind::kBalanced, 64), 100, 2), "100 is not a multiple of the unit 64");
  ChunkSpec parts;
  parts.parts = {4, 5};
  EXPECT_EQ(chunk_problem(parts, 10, 1), "its parts add up to 9, not 10");
  parts.parts = {~std::uint64_t{0}, 2};
  EXPECT_NE(chunk_problem(parts, 1, 1), "");
}

TEST(NamePattern, GlobsAndCaptures) {
  const NamePattern pattern("*layers.{layer}.mlp.experts.{expert}.*");
  const auto captures = pattern.match("model.layers.12.mlp.experts.3.w1.weight");
  ASSERT_TRUE(captures);
  EXPECT_EQ(capture(*captures, "layer"), 12U);
  EXPECT_EQ(capture(*captures, "expert"), 3U);
  EXPECT_EQ(capture(*captures, "other"), std::nullopt);
  EXPECT_FALSE(pattern.match("model.layers.x.mlp.experts.3.w1"));
  EXPECT_FALSE(pattern.match("model.layers.1.mlp.experts."));
  EXPECT_TRUE(NamePattern("*").match(""));
  EXPECT_TRUE(NamePattern("a*b*c").match("aXbbXc"));
  EXPECT_FALSE(NamePattern("abc").match("abcd"));
  EXPECT_EQ(capture(*NamePattern("*{n}").match("x123"), "n"), 123U);
  EXPECT_FALSE(NamePattern("{n}").match("99999999999999999999"));
  EXPECT_FALSE(NamePattern("a{n}5").match("a15"));
  EXPECT_TRUE(NamePattern("*a*{n}*b").match("xa1a22zb"));
  EXPECT_FALSE(NamePattern("*a*a*a*a*a*a*a*a*a*b").match(std::string(20000, 'a')));  // must not take long
  for (const char* bad : {"a{", "a{}", "{x"}) {
    EXPECT_NE(error_of(ErrorKind::kUsage, [&] { NamePattern{bad}; }).find("name pattern"), std::string::npos);
  }
}

TEST(Selector, SelectsBySectionAndName) {
  EXPECT_TRUE(Selector({}).selects("model", "w"));
  const Selector layer({{"model", "opt*"}, {"layers.3.*", "norm"}});
  EXPECT_TRUE(layer.selects("model", "layers.3.w"));
  EXPECT_TRUE(layer.selects("model", "layers.3."));
  EXPECT_TRUE(layer.selects("optimizer", "norm"));
  EXPECT_FALSE(layer.selects("model", "layers.31.w"));
  EXPECT_FALSE(layer.selects("model", "norm.w"));
  EXPECT_FALSE(layer.selects("master_weights", "norm"));
  EXPECT_TRUE(Selector({{}, {"a{1"}}).selects("any", "a{1"));  // braces are literal here
  EXPECT_FALSE(Selector({{}, {"a{n}"}}).selects("any", "a1"));
  EXPECT_FALSE(Selector({{}, {""}}).selects("any", "a"));
}

}  // namespace
}  // namespace cairn::shard
