// Finds the parameter of each name, and the layout's rule for each tensor.
#include "shard/bind.hpp"

#include <fmt/core.h>

#include <map>

#include "base/text.hpp"
#include "cairn/error.hpp"
#include "shard/box_math.hpp"
#include "shard/name_pattern.hpp"

namespace cairn::shard {
namespace {

struct Parameter {
  const Tensor* spec = nullptr;
  std::uint64_t position = 0;
};

using Parameters = std::map<std::string_view, Parameter>;

// A parameter's spec comes from `tensors` if section "model" lists the parameter there, otherwise from `model`.
Parameters parameters_of(const Model& model, const std::vector<std::string>& sections,
                         const std::vector<Tensor>& tensors) {
  Parameters out;
  for (std::uint64_t i = 0; i < model.tensors.size(); ++i) out[model.tensors[i].name] = {&model.tensors[i], i};
  for (std::uint64_t i = 0; i < tensors.size(); ++i) {
    if (sections[i] != "model") continue;
    const auto [entry, added] = out.try_emplace(tensors[i].name, Parameter{&tensors[i], model.tensors.size() + i});
    if (!added) entry->second.spec = &tensors[i];
  }
  return out;
}

bool is_one(const LayoutRules& rules, std::uint32_t axis) { return rules.axes[axis].size == 1; }

// A JSON layout's rule for a tensor: the first rule that matches the tensor's section, and the tensor's name or the
// name of its parameter.

[[noreturn]] void fail(const std::string& what) { throw Error(ErrorKind::kUsage, "layout JSON: " + what); }

// Adds the condition that limits a tensor to the coordinates that hold its layer or expert, number `number`.
void add_place(const NumberMap& map, std::uint64_t number, const TensorToBind& tensor, Where& where) {
  if (number >= map.coordinates.size() || map.coordinates[number].empty()) {
    fail(fmt::format("tensor '{}': number {} is placed on no coordinate", base::printable(tensor.spec.name), number));
  }
  where.conditions.push_back({map.axis, map.coordinates[number]});
}

}  // namespace

std::vector<TensorFacts> facts_of(const Model& model, const std::vector<std::string>& sections,
                                  const std::vector<Tensor>& tensors) {
  const Parameters parameters = parameters_of(model, sections, tensors);
  std::vector<TensorFacts> out(tensors.size());
  for (std::uint64_t i = 0; i < tensors.size(); ++i) {
    const Tensor& tensor = tensors[i];
    TensorFacts& facts = out[i];
    const std::string_view name = tensor.name;
    facts.parameter = parameter_of(model, name);
    // Parameters that only the list names, as in "optim.<name>.exp_avg" of an unknown model.
    if (facts.parameter.empty())
      facts.parameter =
          known_part_of(base_name(name), [&](std::string_view part) { return parameters.contains(part); });
    if (facts.parameter.empty()) facts.parameter = base_name(name);
    const bool is_state = facts.parameter.size() != name.size();
    if (is_state) {
      const auto at = static_cast<std::size_t>(facts.parameter.data() - name.data());
      facts.role = std::string(name.substr(0, at)) + std::string(name.substr(at + facts.parameter.size()));
    }
    const auto found = parameters.find(facts.parameter);
    const Tensor* spec = found == parameters.end() ? nullptr : found->second.spec;
    facts.parameter_dtype = spec != nullptr ? spec->dtype : tensor.dtype;
    facts.position = spec != nullptr ? found->second.position : model.tensors.size() + i;
    if (tensor.shape.empty()) {
      facts.follows_parameter = false;
    } else if (is_state) {
      facts.follows_parameter = spec != nullptr ? spec->shape == tensor.shape : elements_of(tensor.shape) > 1;
    }
  }
  return out;
}

// A short form's rule for a tensor, given the rule of its family.
//
// Without fsdp, tensor-parallel cuts are even (Megatron) or, with `uneven`, whole units divided as evenly as
// possible. With fsdp, cuts are by torch.chunk, as DTensor's Shard, and fsdp then cuts dimension 0 of the
// tensor-parallel shard (FSDP2). zero=1 and zero=2 cut the optimizer and master_weights sections like DeepSpeed's flat
// groups; zero=3 cuts all sections like the slots of ZeRO-3.

ShortBinder::ShortBinder(const LayoutRules& rules, const Model& model)
    : rules_(rules), form_(*rules.short_form), model_(model) {
  if (rules.stages) {
    layers_.emplace(rules, *rules.stages);
    return;
  }
  const std::uint64_t chunks = rules.axes[form_.pp].size * form_.virtual_stages;
  if (chunks == 1 || model.layers == 0) return;
  if (model.layers % chunks != 0 && !form_.uneven) {
    throw Error(ErrorKind::kUsage,
                fmt::format("layout '{}': the {} layers of the model do not divide by {} pipeline chunks (pp={}, "
                            "vpp={}); add `uneven`, or list the layers of each stage in a JSON layout",
                            base::printable(rules.text), model.layers, chunks, rules.axes[form_.pp].size,
                            form_.virtual_stages));
  }
  Placement placement;
  placement.axis = form_.pp;
  placement.count = model.layers;
  placement.kind = ChunkKind::kBalanced;
  placement.virtual_stages = form_.virtual_stages;
  layers_.emplace(rules, placement);
}

TensorRule ShortBinder::bind(const TensorToBind& tensor) {
  const auto family = rule_of(model_, tensor.facts.parameter);
  if (!family) return bind_unknown(tensor);
  TensorRule rule;
  place(*family, rule.where);
  if (!tensor.facts.follows_parameter) return rule;
  const bool is_expert = family->expert >= 0;
  if (family->tp_dim >= 0 && !is_one(rules_, is_expert ? form_.etp : form_.tp)) {
    rule.cuts.push_back(tensor_parallel(*family));
  }
  if (form_.fsdp) {
    rule.cuts.push_back({0, {*form_.fsdp}, {}});
    rule.cuts.back().spec.kind = ChunkKind::kTorch;
  }
  add_flat(tensor, is_expert, rule);
  return rule;
}

Cut ShortBinder::tensor_parallel(const ShardRule& family) const {
  Cut cut;
  cut.dim = static_cast<std::uint32_t>(family.tp_dim);
  cut.axes = {family.expert >= 0 ? form_.etp : form_.tp};
  cut.spec.equal_parts = family.parts;
  cut.spec.block = family.scale_block;
  cut.spec.scaled = family.scaled_size;
  if (form_.fsdp) {
    cut.spec.kind = ChunkKind::kTorch;
  } else if (form_.uneven) {
    cut.spec.kind = ChunkKind::kBalanced;
    cut.spec.unit = family.unit;
  }
  return cut;
}

void ShortBinder::place(const ShardRule& family, Where& where) const {
  const std::uint64_t stages = rules_.axes[form_.pp].size;
  if (stages > 1) {
    Where::Condition condition{form_.pp, {}};
    if (family.first_stage) condition.coordinates.push_back(0);
    if (family.last_stage) condition.coordinates.push_back(stages - 1);
    if (family.layer >= 0) {
      const auto layer = static_cast<std::size_t>(family.layer);
      if (!layers_ || layer >= layers_->coordinates.size() || layers_->coordinates[layer].empty()) {
        throw Error(ErrorKind::kUsage,
                    fmt::format("layout '{}': layer {} is on no stage", base::printable(rules_.text), layer));
      }
      condition.coordinates = layers_->coordinates[layer];
    }
    if (!condition.coordinates.empty()) where.conditions.push_back(std::move(condition));
  }
  if (family.expert < 0 || is_one(rules_, form_.ep)) return;
  const std::uint64_t ways = rules_.axes[form_.ep].size;
  if (model_.experts % ways != 0 && !form_.uneven) {
    throw Error(ErrorKind::kUsage,
                fmt::format("layout '{}': the {} experts of the model do not divide by ep={}; add `uneven`",
                            base::printable(rules_.text), model_.experts, ways));
  }
  const auto expert = static_cast<std::uint64_t>(family.expert);
  for (std::uint64_t at = 0; at < ways; ++at) {
    const Range range = balanced_chunk(model_.experts, ways, at);
    if (expert >= range.begin && expert < range.end) where.conditions.push_back({form_.ep, {at}});
  }
}

void ShortBinder::add_flat(const TensorToBind& tensor, bool is_expert, TensorRule& rule) const {
  const bool is_state = tensor.section == "optimizer" || tensor.section == "master_weights";
  if (form_.zero == 0 || (!is_state && form_.zero < 3)) return;
  rule.flat = is_expert ? &form_.expert_flat : &form_.dense_flat;
  rule.buffer = fmt::format("{}|{}|{}", tensor.section, tensor.facts.role, is_expert ? "experts" : "dense");
}

// Tensors unknown to the family: FSDP2's cut if it applies, otherwise a cut over all ranks (tp, pp or ep) or zero's.
TensorRule ShortBinder::bind_unknown(const TensorToBind& tensor) {
  TensorRule rule;
  if (!tensor.facts.follows_parameter) return rule;
  const bool is_parallel = !is_one(rules_, form_.tp) || !is_one(rules_, form_.pp) || !is_one(rules_, form_.ep);
  Cut cut;
  cut.spec.kind = ChunkKind::kTorch;
  if (form_.fsdp && (model_.family != "unknown" || !is_parallel)) {
    cut.axes = {*form_.fsdp};
    rule.cuts.push_back(std::move(cut));
  } else if (is_parallel) {
    cut.axes = form_.world;
    rule.cuts.push_back(std::move(cut));
    if (unknown_count_++ == 0) unknown_example_ = tensor.spec.name;
  } else {
    add_flat(tensor, false, rule);
  }
  return rule;
}

void ShortBinder::add_notes(std::vector<std::string>& notes) const {
  if (unknown_count_ == 0) return;
  const std::string ranks = base::counted(static_cast<std::uint64_t>(rules_.world), "rank");
  if (model_.family.empty() || model_.family == "unknown") {
    notes.push_back(fmt::format("unknown model: every tensor is cut on dimension 0 over {}", ranks));
    return;
  }
  notes.push_back(fmt::format("{} to family {} and cut on dimension 0 over {}, the first is '{}'",
                              base::counted(unknown_count_, "tensor is unknown", "tensors are unknown"), model_.family,
                              ranks, base::printable(unknown_example_)));
}

NumberMap::NumberMap(const LayoutRules& rules, const Placement& placement) : axis(placement.axis) {
  constexpr std::uint64_t kMostNumber = 1U << 20;
  const auto add = [&](std::uint64_t number, std::uint64_t coordinate) {
    if (number > kMostNumber) fail(fmt::format("layer or expert number {} is too large", number));
    if (number >= coordinates.size()) coordinates.resize(number + 1);
    coordinates[number].push_back(coordinate);
  };
  const std::uint64_t stages = rules.axes[placement.axis].size;
  if (placement.lists) {
    for (std::uint64_t stage = 0; stage < stages; ++stage) {
      for (const std::uint64_t number : (*placement.lists)[stage]) add(number, stage);
    }
    return;
  }
  ChunkSpec spec;
  spec.kind = placement.kind;
  const std::uint64_t chunks = stages * placement.virtual_stages;
  for (std::uint64_t at = 0; at < chunks; ++at) {
    for (const Range& range : chunk(spec, placement.count, chunks, at)) {
      for (std::uint64_t number = range.begin; number < range.end; ++number) add(number, at % stages);
    }
  }
}

JsonBinder::JsonBinder(const LayoutRules& rules, const Model& model) : rules_(rules) {
  if (rules.short_form) base_ = std::make_unique<ShortBinder>(rules, model);
  if (rules.stages) layers_.emplace(rules, *rules.stages);
  if (rules.experts) experts_.emplace(rules, *rules.experts);
  for (const NameRule& rule : rules.rules) {
    auto& groups = groups_of_rule_.emplace_back();
    if (!rule.flat) continue;
    for (const auto& patterns : rule.flat->groups) {
      auto& group = groups.emplace_back();
      for (const std::string& text : patterns) {
        const bool excludes = text.starts_with('!');
        group.emplace_back(excludes, NamePattern(excludes ? std::string_view(text).substr(1) : text));
      }
    }
  }
}

TensorRule JsonBinder::bind(const TensorToBind& tensor) {
  for (const NameRule& rule : rules_.rules) {
    if (!rule.section.match(tensor.section)) continue;
    for (const std::string_view name : {std::string_view(tensor.spec.name), tensor.facts.parameter}) {
      for (const NamePattern& pattern : rule.match) {
        if (const auto captures = pattern.match(name)) return apply(rule, *captures, tensor);
      }
    }
  }
  return bind_otherwise(tensor);
}

TensorRule JsonBinder::apply(const NameRule& rule, const Captures& captures, const TensorToBind& tensor) const {
  TensorRule out;
  out.where = rule.where;
  const auto layer = capture(captures, "layer");
  const auto expert = capture(captures, "expert");
  if (layer && layers_) add_place(*layers_, *layer, tensor, out.where);
  if (expert && experts_) add_place(*experts_, *expert, tensor, out.where);
  if (rule.boxes) {
    out.boxes = &*rule.boxes;
    return out;
  }
  if (!tensor.facts.follows_parameter) return out;
  out.cuts = rule.cuts;
  if (!rule.flat) return out;
  out.flat = &*rule.flat;
  const auto& groups = groups_of_rule_[static_cast<std::size_t>(&rule - rules_.rules.data())];
  out.buffer = fmt::format("{}|{}|{}|{}", rule.flat->key, tensor.section, tensor.facts.role,
                           name_of(tensor.facts.parameter_dtype));
  if (rule.flat->kind == FlatKind::kZero1 || rule.flat->kind == FlatKind::kZero3) {
    out.buffer = fmt::format("{}|{}|{}", rule.flat->key, tensor.section, tensor.facts.role);  // buffers mix dtypes
  }
  if (groups.empty()) return out;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    std::optional<Captures> chosen;
    bool excluded = false;
    for (const auto& [excludes, pattern] : groups[g]) {
      const auto match = pattern.match(tensor.facts.parameter);
      if (match && excludes) excluded = true;
      if (match && !excludes && !chosen) chosen = match;
    }
    if (excluded || !chosen) continue;
    out.buffer += fmt::format("|{}", g);
    for (const auto& [name, number] : *chosen) out.buffer += fmt::format("|{}", number);
    return out;
  }
  fail(fmt::format("{}.flat: tensor '{}' is in no group", rule.key, base::printable(tensor.spec.name)));
}

TensorRule JsonBinder::bind_otherwise(const TensorToBind& tensor) {
  if (base_) return base_->bind(tensor);
  TensorRule rule;
  if (rules_.otherwise == Otherwise::kError) {
    fail(fmt::format("no rule matches tensor '{}' of section '{}'", base::printable(tensor.spec.name),
                     base::printable(tensor.section)));
  }
  if (rules_.otherwise == Otherwise::kReplicate) {
    if (tensor.facts.follows_parameter && unmatched_count_++ == 0) unmatched_example_ = tensor.spec.name;
  } else if (tensor.facts.follows_parameter) {
    rule.cuts.push_back({0, {rules_.otherwise_axis}, {}});
    rule.cuts.back().spec.kind = ChunkKind::kTorch;
  }
  return rule;
}

void JsonBinder::add_notes(std::vector<std::string>& notes) const {
  if (base_) base_->add_notes(notes);
  if (unmatched_count_ == 0) return;
  notes.push_back(
      fmt::format("{} replicated on every rank, the first is '{}'",
                  base::counted(unmatched_count_, "tensor matches no rule and is", "tensors match no rule and are"),
                  base::printable(unmatched_example_)));
}

}  // namespace cairn::shard
