// Qwen3, dense: Llama with RMS norms of head_dim elements on q and k after o_proj in state-dict order; heads * head_dim
// need not be the hidden size (transformers modeling_qwen3.py).
#include "shard/families/builder.hpp"

namespace cairn::shard {

Model qwen3_model(const Config& config, std::uint64_t layers) {
  ModelBuilder builder("qwen3", config, layers);
  Decoder d = read_decoder(config);
  if (!config.has("head_dim")) d.head_dim = 128;  // Qwen3Config's default
  d.qk_norm = true;
  d.qkv_bias = d.o_bias = config.flag("attention_bias", false);
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

}  // namespace cairn::shard
