// Families with Llama's layers, apart from a few differences.
#include <algorithm>
#include <utility>

#include "shard/families/builder.hpp"

namespace cairn::shard {
namespace {

/// Every layer has attention and a gated MLP, with the biases and norms given by `d`.
Model dense_model(ModelBuilder builder, const Config& config, const Decoder& d) {
  const std::uint64_t ffn = config.number("intermediate_size");
  add_embedding(builder, d);
  for (std::uint64_t layer = 0; layer < builder.layers(); ++layer) {
    add_attention(builder, d, layer);
    add_gated_mlp(builder, d, ffn, {layer_prefix(layer) + "mlp.", in_layer(replicated(), layer)});
    add_layer_norms(builder, d, layer);
  }
  add_head(builder, d);
  return builder.take();
}

}  // namespace

// Llama 2, 3, 3.1, 3.2, SmolLM2, and Mistral, which has the same tensors. attention_bias puts biases on q, k, v and o,
// mlp_bias on gate, up and down (transformers modeling_llama.py).

Model llama_model(const Config& config, std::uint64_t layers) {
  ModelBuilder builder("llama", config, layers);
  Decoder d = read_decoder(config);
  d.qkv_bias = d.o_bias = config.flag("attention_bias", false);
  d.mlp_bias = config.flag("mlp_bias", false);
  return dense_model(std::move(builder), config, d);
}

// Mixtral: Llama attention; block_sparse_moe with a router (replicated) and experts w1 (gate), w2 (down), w3 (up) in
// this order (transformers 4 modeling_mixtral.py; transformers 5 still writes these names).

Model mixtral_model(const Config& config, std::uint64_t layers) {
  ModelBuilder builder("mixtral", config, layers);
  const Decoder d = read_decoder(config);
  const std::uint64_t experts = config.count("num_local_experts");
  const std::uint64_t ffn = config.number("intermediate_size");
  builder.set_experts(experts);
  add_embedding(builder, d);
  for (std::uint64_t layer = 0; layer < builder.layers(); ++layer) {
    const std::string moe = layer_prefix(layer) + "block_sparse_moe.";
    add_attention(builder, d, layer);
    builder.add(moe + "gate.weight", {experts, d.hidden}, in_layer(replicated(), layer));
    for (std::uint64_t e = 0; e < experts; ++e) {
      const std::string expert = moe + "experts." + std::to_string(e) + ".";
      builder.linear(expert + "w1", ffn, d.hidden, in_expert(in_layer(column_parallel(), layer), e));
      builder.linear(expert + "w2", d.hidden, ffn, in_expert(in_layer(row_parallel(), layer), e));
      builder.linear(expert + "w3", ffn, d.hidden, in_expert(in_layer(column_parallel(), layer), e));
    }
    add_layer_norms(builder, d, layer);
  }
  add_head(builder, d);
  return builder.take();
}

// Qwen2 and Qwen2.5: Llama, always with biases on q, k and v, and without one on o (transformers modeling_qwen2.py).

Model qwen2_model(const Config& config, std::uint64_t layers) {
  ModelBuilder builder("qwen2", config, layers);
  Decoder d = read_decoder(config);
  d.qkv_bias = true;
  return dense_model(std::move(builder), config, d);
}

// Qwen3, dense: Llama with RMS norms of head_dim elements on q and k, which follow o_proj in state-dict order;
// heads * head_dim need not be the hidden size (transformers modeling_qwen3.py).

Model qwen3_model(const Config& config, std::uint64_t layers) {
  ModelBuilder builder("qwen3", config, layers);
  Decoder d = read_decoder(config);
  if (!config.has("head_dim")) d.head_dim = 128;  // Qwen3Config's default
  d.qk_norm = true;
  d.qkv_bias = d.o_bias = config.flag("attention_bias", false);
  return dense_model(std::move(builder), config, d);
}

// Qwen3-MoE: Qwen3 attention; a router (replicated) and experts of moe_intermediate_size, but a dense MLP in the layers
// of mlp_only_layers and in layers where layer + 1 is not a multiple of decoder_sparse_step (transformers
// modeling_qwen3_moe.py). Transformers 5 can also save the experts of a layer fused: gate_up_proj [E, 2I, H], down_proj
// [E, H, I].

Model qwen3_moe_model(const Config& config, std::uint64_t layers) {
  ModelBuilder builder("qwen3_moe", config, layers);
  Decoder d = read_decoder(config);
  d.qk_norm = true;
  d.qkv_bias = d.o_bias = config.flag("attention_bias", false);
  const std::uint64_t experts = config.count(config.has("num_experts") ? "num_experts" : "num_local_experts");
  const std::uint64_t expert_ffn = config.number("moe_intermediate_size");
  const std::uint64_t sparse_step = std::max<std::uint64_t>(1, config.number("decoder_sparse_step", 1));
  const auto dense_layers = config.numbers("mlp_only_layers");
  builder.set_experts(experts);
  add_embedding(builder, d);
  for (std::uint64_t layer = 0; layer < builder.layers(); ++layer) {
    const std::string mlp = layer_prefix(layer) + "mlp.";
    add_attention(builder, d, layer);
    if (std::ranges::find(dense_layers, layer) != dense_layers.end() || (layer + 1) % sparse_step != 0) {
      add_gated_mlp(builder, d, config.number("intermediate_size"), {mlp, in_layer(replicated(), layer)});
    } else {
      builder.add(mlp + "gate.weight", {experts, d.hidden}, in_layer(replicated(), layer));
      for (std::uint64_t e = 0; e < experts; ++e) {
        const Site expert{mlp + "experts." + std::to_string(e) + ".", in_expert(in_layer(replicated(), layer), e)};
        add_gated_mlp(builder, d, expert_ffn, expert);
      }
    }
    add_layer_norms(builder, d, layer);
  }
  add_head(builder, d);
  return builder.take();
}

}  // namespace cairn::shard
