// Llama 2, 3, 3.1, 3.2, SmolLM2, and Mistral, which has the same tensors. attention_bias puts biases on q, k, v and o,
// mlp_bias on gate, up and down (transformers modeling_llama.py).
#include "shard/families/builder.hpp"

namespace cairn::shard {

Model llama_model(const Config& config, std::uint64_t layers) {
  ModelBuilder builder("llama", config, layers);
  Decoder d = read_decoder(config);
  d.qkv_bias = d.o_bias = config.flag("attention_bias", false);
  d.mlp_bias = config.flag("mlp_bias", false);
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
