#include "interop/paddle/tensor_cuts.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>

#include "interop/paddle/config.hpp"
#include "interop/paddle/slices.hpp"

namespace cairn::interop {
namespace {

/// "q_proj" and "weight" of "llama.layers.0.self_attn.q_proj.weight".
std::pair<std::string_view, std::string_view> module_and_kind(std::string_view name) {
  const std::size_t dot = name.rfind('.');
  if (dot == std::string_view::npos) return {{}, name};
  return {module_of(name), name.substr(dot + 1)};
}

TensorCut unknown(std::string why) {
  TensorCut out;
  out.unknown = std::move(why);
  return out;
}

/// No cut, if the bytes or (`is_known`) the name show that every rank has the whole tensor; otherwise an unknown cut.
/// With `may_differ`, the copies may have drifted apart, which PaddleNLP ignores when it merges.
TensorCut copies_of(Copies found, bool is_known, bool may_differ) {
  TensorCut out;
  out.differs = found == Copies::kDiffer;
  const bool is_whole =
      found == Copies::kAlike || (found != Copies::kDiffer && is_known) || (out.differs && may_differ);
  if (is_whole) return out;
  constexpr std::string_view kWhy = "its name does not tell whether the ranks have parts or copies of it, ";
  return unknown(std::string(kWhy) + (out.differs                 ? "and their bytes differ"
                                      : found == Copies::kUniform ? "nor do their bytes, which are one value"
                                                                  : "and their bytes cannot be read"));
}

/// Whether the module's name is that of a normalisation, whose weights every rank has as a whole.
bool is_norm(std::string_view module) {
  return module.find("norm") != std::string_view::npos || module.starts_with("ln_");
}

/// The dimension along which ranks cut a tensor of that kind; nothing: every rank has the whole tensor.
std::optional<std::size_t> dimension_of(bool is_columns, std::string_view kind, std::size_t dimensions) {
  if (dimensions == 0) return std::nullopt;
  if (kind == "bias" || kind == "lora_B") return is_columns ? std::optional(dimensions - 1) : std::nullopt;
  if (kind == "lora_A") return is_columns ? std::nullopt : std::optional<std::size_t>(0);
  return is_columns ? dimensions - 1 : 0;
}

/// Whether a weight was cut: with mark v or k only if its size is a multiple of the number of ranks, otherwise always.
/// Nothing if config.json is not conclusive. Sets `out.unknown` if config.json contradicts the shape.
std::optional<bool> is_cut_evenly(std::string_view marks, std::uint64_t length, std::uint32_t ranks,
                                  const ModelFacts& facts, TensorCut& out) {
  if (has_mark(marks, 'k')) {
    if (!facts.key_value_heads) return std::nullopt;
    return *facts.key_value_heads % ranks == 0;
  }
  if (!has_mark(marks, 'v')) return true;
  if (!facts.vocabulary) return std::nullopt;
  if (length == *facts.vocabulary) return false;
  if (*facts.vocabulary % ranks != 0 || length != *facts.vocabulary / ranks) {
    out.unknown = fmt::format("config.json says vocab_size {}, of which it is neither all nor one of {} equal parts",
                              *facts.vocabulary, ranks);
  }
  return true;
}

}  // namespace

ModelFacts facts_of(const Reading& reading, std::string_view name) { return facts_of(config_of(reading), name); }

TensorCut cut_of(std::string_view name, const std::vector<std::uint64_t>& shape, std::uint32_t ranks,
                 const ModelFacts& facts, const std::function<Copies()>& copies) {
  constexpr std::array<std::string_view, 5> kKinds = {"weight", "bias", "lora_A", "lora_B", "weight_scale_inv"};
  const auto [module, kind] = module_and_kind(name);
  const bool is_kind_known = std::ranges::find(kKinds, kind) != kKinds.end();
  const bool is_known = is_kind_known && !facts.family.empty();
  const std::string_view marks = is_kind_known ? marks_of(facts, name).value_or("") : "";
  if (marks.find_first_of("crheo") == std::string_view::npos) {
    const bool has_norm = is_norm(module);
    return copies_of(copies(), is_known || has_norm, is_known && has_norm);
  }
  Fused fused = fused_of(facts, name);
  if (!fused.unknown.empty()) return unknown(std::move(fused.unknown));
  const bool is_head = marks.find_first_of("cr") == std::string_view::npos;
  const auto dimension = dimension_of(is_head ? !is_tied(facts) : has_mark(marks, 'c'), kind, shape.size());
  if (!dimension) return copies_of(copies(), true, is_known);
  if (kind == "lora_B" && fused.widths.size() > 1) {
    return unknown("it is of several weights side by side, of which PaddlePaddle joins adapters in another order");
  }
  TensorCut out;
  const auto is_even = is_cut_evenly(marks, shape[*dimension], ranks, facts, out);
  if (!out.unknown.empty()) return out;
  if (is_even == false) return copies_of(copies(), true, is_known);
  if (!is_even) {
    const Copies found = copies();
    if (found == Copies::kAlike) return out;
    if (found != Copies::kDiffer) {
      return unknown("config.json does not tell whether the ranks have parts or copies of it, nor do their bytes");
    }
  }
  out.is_cut = true;
  out.dimension = *dimension;
  out.fused = std::move(fused.widths);
  return out;
}

}  // namespace cairn::interop
