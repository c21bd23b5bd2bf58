// Qwen3-MoE: Qwen3 attention; a router (replicated) and experts of moe_intermediate_size, but a dense MLP in the layers
// of mlp_only_layers and where (layer + 1) is no multiple of decoder_sparse_step (transformers modeling_qwen3_moe.py).
// Transformers 5 can also save the experts of a layer fused: gate_up_proj [E, 2I, H], down_proj [E, H, I].
#include <algorithm>

#include "shard/families/builder.hpp"

namespace cairn::shard {

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
