// Mixtral: Llama attention; block_sparse_moe with a router (replicated) and experts w1 (gate), w2 (down), w3 (up) in
// this order (transformers 4 modeling_mixtral.py; transformers 5 still writes these names).
#include "shard/families/builder.hpp"

namespace cairn::shard {

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

}  // namespace cairn::shard
