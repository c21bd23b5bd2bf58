// DeepSeek-V3: multi-head latent attention, dense MLPs in the first layers, then 256 experts and a shared expert; after
// the last layer come num_nextn_predict_layers more layers (multi-token prediction) with copies of embedding and head.
//
// Tensor parallelism as in Megatron-core's Transformer Engine spec: the down projections q_a and kv_a are
// replicated, q_b and kv_b are cut by heads, o on dimension 1. The prediction layers are on the last pipeline stage.
// In FP8 files every linear layer except embeddings, heads, router and eh_proj has a weight_scale_inv;
// e_score_correction_bias is always F32.
#include <algorithm>

#include "shard/families/builder.hpp"

namespace cairn::shard {
namespace {

struct Latent {
  std::uint64_t q_rank = 0;  // 0: a plain q_proj
  std::uint64_t kv_rank = 0;
  std::uint64_t nope = 0;
  std::uint64_t rope = 0;
  std::uint64_t value = 0;
};

struct Experts {
  std::uint64_t count = 0;
  std::uint64_t ffn = 0;
  std::uint64_t shared = 0;
};

void add_latent_attention(ModelBuilder& builder, const Decoder& d, const Latent& a, const Site& site) {
  const auto& [module, place] = site;
  const auto columns = [&](std::uint64_t unit) {
    ShardRule rule = site.place;
    rule.tp_dim = 0;
    rule.unit = unit;
    return rule;
  };
  const std::uint64_t q_head = a.nope + a.rope;
  if (a.q_rank == 0) {
    builder.linear(module + "q_proj", times(d.heads, q_head), d.hidden, columns(q_head));
  } else {
    builder.linear(module + "q_a_proj", a.q_rank, d.hidden, place);
    builder.add(module + "q_a_layernorm.weight", {a.q_rank}, place);
    builder.linear(module + "q_b_proj", times(d.heads, q_head), a.q_rank, columns(q_head));
  }
  builder.linear(module + "kv_a_proj_with_mqa", a.kv_rank + a.rope, d.hidden, place);
  builder.add(module + "kv_a_layernorm.weight", {a.kv_rank}, place);
  builder.linear(module + "kv_b_proj", times(d.heads, a.nope + a.value), a.kv_rank, columns(a.nope + a.value));
  ShardRule rows = place;
  rows.tp_dim = 1;
  rows.unit = a.value;
  builder.linear(module + "o_proj", d.hidden, times(d.heads, a.value), rows);
}

void add_experts(ModelBuilder& builder, const Decoder& d, const Experts& moe, const Site& site) {
  const auto& [mlp, place] = site;
  for (std::uint64_t e = 0; e < moe.count; ++e) {
    add_gated_mlp(builder, d, moe.ffn, {mlp + "experts." + std::to_string(e) + ".", in_expert(place, e)});
  }
  builder.add(mlp + "gate.weight", {moe.count, d.hidden}, place);
  builder.add(mlp + "gate.e_score_correction_bias", DType::kF32, {moe.count}, place);
  if (moe.shared != 0) add_gated_mlp(builder, d, times(moe.shared, moe.ffn), {mlp + "shared_experts.", place});
}

}  // namespace

Model deepseek_v3_model(const Config& config, std::uint64_t layers) {
  ModelBuilder builder("deepseek_v3", config, layers);
  const Decoder d = read_decoder(config);
  const Latent attention{config.number("q_lora_rank", 0), config.number("kv_lora_rank"),
                         config.number("qk_nope_head_dim"), config.number("qk_rope_head_dim"),
                         config.number("v_head_dim")};
  const Experts moe{config.count("n_routed_experts"), config.number("moe_intermediate_size"),
                    config.number("n_shared_experts", 0)};
  const std::uint64_t dense_layers = config.number("first_k_dense_replace", 0);
  const std::uint64_t sparse_step = std::max<std::uint64_t>(1, config.number("moe_layer_freq", 1));
  const std::uint64_t predictors =
      config.has("num_nextn_predict_layers") ? config.number("num_nextn_predict_layers", 0) : 0;
  builder.set_experts(moe.count);
  add_embedding(builder, d);
  for (std::uint64_t layer = 0; layer < builder.layers() + predictors; ++layer) {
    const bool predicts = layer >= builder.layers();
    const std::string prefix = layer_prefix(layer);
    const ShardRule place = predicts ? on_last_stage(replicated()) : in_layer(replicated(), layer);
    ShardRule columns = place;
    columns.tp_dim = 0;
    const auto add = [&](const char* name, Dims shape, const ShardRule& rule) {
      builder.add(prefix + name, std::move(shape), rule);
    };
    if (predicts) {
      add("embed_tokens.weight", {d.vocab, d.hidden}, columns);
      add("enorm.weight", {d.hidden}, place);
      add("hnorm.weight", {d.hidden}, place);
      add("eh_proj.weight", {d.hidden, times(2, d.hidden)}, columns);
    }
    add_latent_attention(builder, d, attention, {prefix + "self_attn.", place});
    if (layer >= dense_layers && layer % sparse_step == 0) {
      add_experts(builder, d, moe, {prefix + "mlp.", place});
    } else {
      add_gated_mlp(builder, d, config.number("intermediate_size"), {prefix + "mlp.", place});
    }
    add("input_layernorm.weight", {d.hidden}, place);
    add("post_attention_layernorm.weight", {d.hidden}, place);
    if (predicts) {
      add("shared_head.norm.weight", {d.hidden}, place);
      add("shared_head.head.weight", {d.vocab, d.hidden}, columns);
    }
  }
  add_head(builder, d);
  return builder.take();
}

}  // namespace cairn::shard
