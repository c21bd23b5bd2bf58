// Planning time of one rank out of 16,384: Llama 3.1 405B with AdamW states in F32, tp=8, pp=16, dp=128, ZeRO-1.
#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>
#include <map>
#include <optional>
#include <string>

#include "plan/coverage.hpp"
#include "plan/file_layout.hpp"
#include "plan/transfers.hpp"
#include "shard/box_math.hpp"
#include "stopwatch.hpp"

namespace cairn::plan {
namespace {

using plan_test::Stopwatch;

constexpr int kTp = 8;
constexpr int kPp = 16;
constexpr int kDp = 128;
constexpr int kRanks = kTp * kPp * kDp;
constexpr std::uint64_t kLayers = 126;

struct Rule {
  std::vector<std::uint64_t> shape;
  int tp_dim = -1;
  int stage = 0;
};

/// Shape, cut and stage of each model tensor, by name.
std::map<std::string, Rule> llama_405b() {
  const std::uint64_t hidden = 16'384;
  const std::uint64_t ffn = 53'248;
  std::map<std::string, Rule> rules = {{"model.embed_tokens.weight", {{128'256, hidden}, 0, 0}},
                                       {"model.norm.weight", {{hidden}, -1, kPp - 1}},
                                       {"lm_head.weight", {{128'256, hidden}, 0, kPp - 1}}};
  for (std::uint64_t layer = 0; layer < kLayers; ++layer) {
    const std::string prefix = "model.layers." + std::to_string(layer) + ".";
    const int stage = static_cast<int>(layer * kPp / kLayers);
    rules[prefix + "self_attn.q_proj.weight"] = {{hidden, hidden}, 0, stage};
    rules[prefix + "self_attn.k_proj.weight"] = {{1024, hidden}, 0, stage};
    rules[prefix + "self_attn.v_proj.weight"] = {{1024, hidden}, 0, stage};
    rules[prefix + "self_attn.o_proj.weight"] = {{hidden, hidden}, 1, stage};
    rules[prefix + "mlp.gate_proj.weight"] = {{ffn, hidden}, 0, stage};
    rules[prefix + "mlp.up_proj.weight"] = {{ffn, hidden}, 0, stage};
    rules[prefix + "mlp.down_proj.weight"] = {{hidden, ffn}, 1, stage};
    rules[prefix + "input_layernorm.weight"] = {{hidden}, -1, stage};
    rules[prefix + "post_attention_layernorm.weight"] = {{hidden}, -1, stage};
  }
  return rules;
}

std::vector<CatalogTensor> training_state(const std::map<std::string, Rule>& rules) {
  std::vector<CatalogTensor> tensors;
  for (const auto& [name, rule] : rules) {
    tensors.push_back({"model", name, DType::kBF16, rule.shape});
    tensors.push_back({"master_weights", name, DType::kF32, rule.shape});
    tensors.push_back({"optimizer", name + "/moment1_0", DType::kF32, rule.shape});
    tensors.push_back({"optimizer", name + "/moment2_0", DType::kF32, rule.shape});
  }
  return tensors;
}

Box cut(Box box, std::size_t d, std::uint64_t part, std::uint64_t parts) {
  const std::uint64_t size = box.shape[d];
  box.offset[d] += part * size / parts;
  box.shape[d] = (part + 1) * size / parts - part * size / parts;
  return box;
}

/// The rank's box of a tensor, or nothing: parameters are replicated over dp, F32 states are cut over it.
std::optional<Box> held_by(const CatalogTensor& tensor, const Rule& rule, int rank) {
  const int tp = rank % kTp;
  const int dp = rank / kTp % kDp;
  if (rank / (kTp * kDp) != rule.stage) return std::nullopt;
  Box box = shard::whole(tensor.shape);
  if (rule.tp_dim >= 0) box = cut(box, static_cast<std::size_t>(rule.tp_dim), static_cast<std::uint64_t>(tp), kTp);
  if (tensor.section != "model") box = cut(box, 0, static_cast<std::uint64_t>(dp), kDp);
  return box;
}

const Rule& rule_of(const std::map<std::string, Rule>& rules, const CatalogTensor& tensor) {
  return rules.at(tensor.name.substr(0, tensor.name.find('/')));
}

std::vector<Piece> all_claims(const CatalogTensor& tensor, const Rule& rule) {
  std::vector<Piece> claims;
  for (int rank = rule.stage * kTp * kDp; rank < (rule.stage + 1) * kTp * kDp; ++rank) {
    claims.push_back({0, 0, rank, held_by(tensor, rule, rank).value()});
  }
  return claims;
}

/// The boxes that a rank holds, and the parts that it provides.
struct Provided {
  std::vector<MemoryBox> memory;
  std::vector<Piece> pieces;
};

/// Computed directly: the tensors' home ranks settle the claims, and this rank does not spend time on that.
Provided provided_by(const Catalog& catalog, const std::map<std::string, Rule>& rules, int rank) {
  Provided provided;
  for (std::uint32_t t = 0; t < catalog.tensors.size(); ++t) {
    const CatalogTensor& tensor = catalog.tensors[t];
    const Rule& rule = rule_of(rules, tensor);
    const auto held = held_by(tensor, rule, rank);
    if (!held) continue;
    if (tensor.section != "model") {
      if (rule.tp_dim < 0 && rank % kTp != 0) continue;
      provided.pieces.push_back({t, static_cast<std::uint32_t>(provided.memory.size()), rank, *held});
    } else {
      const auto share = cut(*held, 0, static_cast<std::uint64_t>(rank / kTp % kDp), kDp);
      provided.pieces.push_back({t, static_cast<std::uint32_t>(provided.memory.size()), rank, share});
    }
    provided.memory.push_back({t, *held, {}});
  }
  return provided;
}

TEST(PlanningTime, OneRankOfSixteenThousand) {
  const auto rules = llama_405b();
  ASSERT_EQ(rules.size(), 1137U);
  std::vector<CatalogTensor> tensors = training_state(rules);
  Stopwatch watch;
  const Catalog catalog = make_catalog(std::move(tensors));
  const FileLayout layout = lay_out_hf(catalog, {});
  const double layout_ms = watch.milliseconds();
  std::vector<std::uint64_t> sizes;
  for (const auto& file : layout.stored.files) sizes.push_back(file.size_bytes);
  const ExtentMap extents(whole_files(sizes), kRanks, 4ULL << 20);
  const double extents_ms = watch.milliseconds();
  EXPECT_GT(extents.total_bytes(), 5'600'000'000'000U);

  const int rank = 5 * kTp * kDp + 77 * kTp + 3;
  const Provided provided = provided_by(catalog, rules, rank);
  ASSERT_GT(provided.pieces.size(), 200U);
  watch.milliseconds();
  const auto transfers = transfers_of_memory(provided.pieces, provided.memory, layout.stored, extents);
  const double transfers_ms = watch.milliseconds();
  std::uint64_t planned = 0;
  for (const Runs& runs : transfers) {
    for (const Extent& e : extents.of(runs.file_rank)) {
      if (e.file == runs.file) planned += runs.bytes_before(e.end) - runs.bytes_before(e.begin);
    }
  }
  std::uint64_t expected = 0;
  for (const Piece& piece : provided.pieces) {
    expected += shard::elements_of(piece.box) * bits_of(catalog.tensors[piece.tensor].dtype) / 8;
  }
  EXPECT_EQ(planned, expected);
  std::cout << "rank " << rank << " of 16,384, 4548 tensors, " << layout.files.size() << " files: catalog and layout "
            << layout_ms << " ms, extents " << extents_ms << " ms, " << transfers.size() << " transfers of "
            << provided.pieces.size() << " pieces " << transfers_ms << " ms\n";
  EXPECT_LT(layout_ms + extents_ms + transfers_ms, plan_test::limit_ms(1000));
}

TEST(PlanningTime, CoverageOnTheHomeRank) {
  const auto rules = llama_405b();
  double slowest = 0;
  for (const char* name : {"model.layers.64.mlp.down_proj.weight", "model.layers.64.self_attn.q_proj.weight",
                           "model.embed_tokens.weight"}) {
    for (const char* section : {"model", "optimizer"}) {
      const Rule& rule = rules.at(name);
      const CatalogTensor tensor{section, name, DType::kBF16, rule.shape};
      std::vector<Piece> claims = all_claims(tensor, rule);
      ASSERT_EQ(claims.size(), 1024U);
      Stopwatch watch;
      const auto provisions = provide(tensor, std::move(claims), 64 << 10, 1);
      slowest = std::max(slowest, watch.milliseconds());
      EXPECT_EQ(provisions.size(), 1024U) << name << " " << section;
      std::uint64_t elements = 0;
      for (const Piece& p : provisions) elements += shard::elements_of(p.box);
      EXPECT_EQ(elements, shard::elements_of(tensor.shape));
    }
  }
  std::cout << "1024 claims of one tensor: " << slowest << " ms at most\n";
  EXPECT_LT(slowest, plan_test::limit_ms(200));
}

}  // namespace
}  // namespace cairn::plan
