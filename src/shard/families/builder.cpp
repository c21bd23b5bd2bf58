// Builds tensors together with their rules, and the blocks of a Llama-like decoder; builder.hpp has facts and sources.
#include "shard/families/builder.hpp"

#include <numeric>

#include "base/checked.hpp"
#include "cairn/error.hpp"

namespace cairn::shard {
namespace {

constexpr std::uint64_t kMostTensors = 1U << 19;

}  // namespace

ShardRule replicated() { return {}; }

ShardRule column_parallel(std::uint64_t unit) {
  ShardRule rule;
  rule.tp_dim = 0;
  rule.unit = unit;
  return rule;
}

ShardRule row_parallel(std::uint64_t unit) {
  ShardRule rule;
  rule.tp_dim = 1;
  rule.unit = unit;
  return rule;
}

ShardRule in_layer(ShardRule rule, std::uint64_t layer) {
  rule.layer = static_cast<std::int64_t>(layer);
  return rule;
}

ShardRule in_expert(ShardRule rule, std::uint64_t expert) {
  rule.expert = static_cast<std::int64_t>(expert);
  return rule;
}

ShardRule on_first_stage(ShardRule rule) {
  rule.first_stage = true;
  return rule;
}

ShardRule on_last_stage(ShardRule rule) {
  rule.last_stage = true;
  return rule;
}

std::uint64_t times(std::uint64_t a, std::uint64_t b) {
  const auto product = base::try_mul(a, b);
  if (!product || *product > (std::uint64_t{1} << 62)) {
    throw Error(ErrorKind::kFormat, "config.json: a tensor dimension is larger than 2^62");
  }
  return *product;
}

ModelBuilder::ModelBuilder(std::string family, const Config& config, std::uint64_t layers) : dtype_(config.dtype()) {
  model_.family = std::move(family);
  model_.layers = layers;
  if (auto quantization = config.quantization()) {
    fp8_ = true;
    quantization_ = *std::move(quantization);
  }
}

void ModelBuilder::add(const std::string& name, DType dtype, Dims shape, const ShardRule& rule) {
  std::uint64_t bits = bits_of(dtype);
  for (const std::uint64_t size : shape) bits = times(bits, size);
  if (model_.tensors.size() >= kMostTensors) throw Error(ErrorKind::kFormat, "config.json: more than 2^19 tensors");
  model_.tensors.push_back({name, dtype, std::move(shape)});
  rules_->by_name[name] = rule;
}

void ModelBuilder::linear(const std::string& module, std::uint64_t out, std::uint64_t in, const ShardRule& rule) {
  if (!fp8_) return add(module + ".weight", {out, in}, rule);
  ShardRule weight = rule;
  ShardRule scale = rule;
  const std::uint64_t blocks[2] = {quantization_.block_rows, quantization_.block_columns};
  if (rule.tp_dim >= 0) {
    // If the size allows it, the unit is whole heads and whole scale blocks, so that `uneven` does not cut a block.
    weight.unit = std::lcm(rule.unit, blocks[rule.tp_dim]);
    const std::uint64_t size = rule.tp_dim == 0 ? out : in;
    if (size % weight.unit != 0) weight.unit = rule.unit;
    scale.unit = weight.unit;
    scale.scale_block = blocks[rule.tp_dim];
    scale.scaled_size = size;
  }
  add(module + ".weight", DType::kF8E4M3, {out, in}, weight);
  add(module + ".weight_scale_inv", DType::kF32, {base::ceil_div(out, blocks[0]), base::ceil_div(in, blocks[1])},
      scale);
}

void ModelBuilder::also(const std::string& name, const ShardRule& rule) { rules_->by_name.try_emplace(name, rule); }

Model ModelBuilder::take() {
  model_.rules = std::move(rules_);
  return std::move(model_);
}

Decoder read_decoder(const Config& config) {
  Decoder d;
  d.hidden = config.number("hidden_size");
  d.heads = config.number("num_attention_heads");
  d.kv_heads = config.has("num_key_value_heads") ? config.number("num_key_value_heads") : d.heads;
  d.head_dim = config.has("head_dim") ? config.number("head_dim") : d.hidden / d.heads;
  d.vocab = config.number("vocab_size");
  d.tied = config.flag("tie_word_embeddings", false);
  if (d.head_dim == 0)
    throw Error(ErrorKind::kFormat, "config.json: key 'hidden_size' is smaller than num_attention_heads");
  return d;
}

std::string layer_prefix(std::uint64_t layer) { return "model.layers." + std::to_string(layer) + "."; }

void add_embedding(ModelBuilder& builder, const Decoder& d) {
  ShardRule rule = on_first_stage(column_parallel());
  if (d.tied) rule = on_last_stage(rule);
  builder.add("model.embed_tokens.weight", {d.vocab, d.hidden}, rule);
}

void add_attention(ModelBuilder& builder, const Decoder& d, std::uint64_t layer) {
  const std::string module = layer_prefix(layer) + "self_attn.";
  const ShardRule columns = in_layer(column_parallel(d.head_dim), layer);
  const std::uint64_t q_rows = times(d.heads, d.head_dim);
  const std::uint64_t kv_rows = times(d.kv_heads, d.head_dim);
  for (const char* name : {"q_proj", "k_proj", "v_proj"}) {
    const std::uint64_t rows = name[0] == 'q' ? q_rows : kv_rows;
    builder.linear(module + name, rows, d.hidden, columns);
    if (d.qkv_bias) builder.add(module + name + ".bias", {rows}, columns);
  }
  builder.linear(module + "o_proj", d.hidden, q_rows, in_layer(row_parallel(d.head_dim), layer));
  if (d.o_bias) builder.add(module + "o_proj.bias", {d.hidden}, in_layer(replicated(), layer));
  if (d.qk_norm) {
    builder.add(module + "q_norm.weight", {d.head_dim}, in_layer(replicated(), layer));
    builder.add(module + "k_norm.weight", {d.head_dim}, in_layer(replicated(), layer));
  }
  // Files of Llama 1 and 2 have this buffer.
  builder.also(module + "rotary_emb.inv_freq", in_layer(replicated(), layer));
}

void add_gated_mlp(ModelBuilder& builder, const Decoder& d, std::uint64_t ffn, const Site& site) {
  ShardRule columns = site.place;
  columns.tp_dim = 0;
  ShardRule rows = site.place;
  rows.tp_dim = 1;
  for (const char* name : {"gate_proj", "up_proj"}) {
    builder.linear(site.module + name, ffn, d.hidden, columns);
    if (d.mlp_bias) builder.add(site.module + name + ".bias", {ffn}, columns);
  }
  builder.linear(site.module + "down_proj", d.hidden, ffn, rows);
  if (d.mlp_bias) builder.add(site.module + "down_proj.bias", {d.hidden}, site.place);
}

void add_layer_norms(ModelBuilder& builder, const Decoder& d, std::uint64_t layer) {
  const std::string prefix = layer_prefix(layer);
  builder.add(prefix + "input_layernorm.weight", {d.hidden}, in_layer(replicated(), layer));
  builder.add(prefix + "post_attention_layernorm.weight", {d.hidden}, in_layer(replicated(), layer));
}

void add_head(ModelBuilder& builder, const Decoder& d) {
  builder.add("model.norm.weight", {d.hidden}, on_last_stage(replicated()));
  const ShardRule head = on_last_stage(column_parallel());
  if (d.tied) {
    builder.also("lm_head.weight", head);  // some files store the tied head too
  } else {
    builder.add("lm_head.weight", {d.vocab, d.hidden}, head);
  }
}

}  // namespace cairn::shard
