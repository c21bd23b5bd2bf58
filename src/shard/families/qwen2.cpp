// Qwen2 and Qwen2.5: Llama with biases on q, k and v, always, and none on o (transformers modeling_qwen2.py).
#include "shard/families/builder.hpp"

namespace cairn::shard {

Model qwen2_model(const Config& config, std::uint64_t layers) {
  ModelBuilder builder("qwen2", config, layers);
  Decoder d = read_decoder(config);
  d.qkv_bias = true;
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
