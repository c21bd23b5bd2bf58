// GPT-2: Conv1D weights are [in, out], so that column-parallel layers are cut on dimension 1 and row-parallel ones on
// 0. c_attn holds the columns Q | K | V; a rank takes its heads from each, so it has three column ranges. The head is
// tied to wte and not stored. Names have no prefix in files of the hub, and begin with "transformer." in files saved by
// transformers; the rules cover both, and the buffers attn.bias and attn.masked_bias of old files.
#include "cairn/error.hpp"
#include "shard/families/builder.hpp"

namespace cairn::shard {
namespace {

constexpr std::uint64_t kQkv = 3;

// Rule of a tensor of a layer whose dimension `dim` is cut over tp, in `parts` parts.
ShardRule conv(std::uint64_t layer, int dim, std::uint64_t unit, std::uint64_t parts = 1) {
  ShardRule rule = in_layer(replicated(), layer);
  rule.tp_dim = dim;
  rule.unit = unit;
  rule.parts = parts;
  return rule;
}

class Gpt2 {
 public:
  Gpt2(const Config& config, std::uint64_t layers) : builder_("gpt2", config, layers) {}

  void add(const std::string& name, Dims shape, const ShardRule& rule) {
    builder_.also("transformer." + name, rule);
    builder_.add(name, std::move(shape), rule);
  }
  void also(const std::string& name, const ShardRule& rule) {
    builder_.also("transformer." + name, rule);
    builder_.also(name, rule);
  }
  ModelBuilder& builder() { return builder_; }

 private:
  ModelBuilder builder_;
};

}  // namespace

Model gpt2_model(const Config& config, std::uint64_t layers) {
  Gpt2 m(config, layers);
  const std::uint64_t hidden = config.number("n_embd");
  const std::uint64_t head_dim = hidden / config.number("n_head");
  if (head_dim == 0) throw Error(ErrorKind::kFormat, "config.json: key 'n_embd' is smaller than n_head");
  const std::uint64_t ffn = config.has("n_inner") ? config.number("n_inner") : times(4, hidden);
  const bool tied = config.flag("tie_word_embeddings", true);
  const std::uint64_t vocab = config.number("vocab_size");
  const ShardRule embedding = on_first_stage(column_parallel());
  m.add("wte.weight", {vocab, hidden}, tied ? on_last_stage(embedding) : embedding);
  m.add("wpe.weight", {config.number(config.has("n_positions") ? "n_positions" : "n_ctx"), hidden},
        on_first_stage(replicated()));
  for (std::uint64_t layer = 0; layer < m.builder().layers(); ++layer) {
    const std::string p = "h." + std::to_string(layer) + ".";
    const ShardRule whole = in_layer(replicated(), layer);
    m.add(p + "ln_1.weight", {hidden}, whole);
    m.add(p + "ln_1.bias", {hidden}, whole);
    m.add(p + "attn.c_attn.weight", {hidden, times(kQkv, hidden)}, conv(layer, 1, head_dim, kQkv));
    m.add(p + "attn.c_attn.bias", {times(kQkv, hidden)}, conv(layer, 0, head_dim, kQkv));
    m.add(p + "attn.c_proj.weight", {hidden, hidden}, conv(layer, 0, head_dim));
    m.add(p + "attn.c_proj.bias", {hidden}, whole);
    m.add(p + "ln_2.weight", {hidden}, whole);
    m.add(p + "ln_2.bias", {hidden}, whole);
    m.add(p + "mlp.c_fc.weight", {hidden, ffn}, conv(layer, 1, 1));
    m.add(p + "mlp.c_fc.bias", {ffn}, conv(layer, 0, 1));
    m.add(p + "mlp.c_proj.weight", {ffn, hidden}, conv(layer, 0, 1));
    m.add(p + "mlp.c_proj.bias", {hidden}, whole);
    m.also(p + "attn.bias", whole);
    m.also(p + "attn.masked_bias", whole);
  }
  m.add("ln_f.weight", {hidden}, on_last_stage(replicated()));
  m.add("ln_f.bias", {hidden}, on_last_stage(replicated()));
  const ShardRule head = on_last_stage(column_parallel());
  if (tied) {
    m.builder().also("lm_head.weight", head);
  } else {
    m.builder().add("lm_head.weight", {vocab, hidden}, head);
  }
  return m.builder().take();
}

}  // namespace cairn::shard
