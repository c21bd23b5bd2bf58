// What a short form says of a tensor, given the rule of its family.
//
// Without fsdp, tensor-parallel cuts are even (Megatron) or, with `uneven`, whole units as evenly as possible. With
// fsdp they are torch.chunk, as DTensor's Shard cuts, and fsdp then cuts dimension 0 of what tensor parallelism leaves
// (FSDP2). zero=1 and 2 cut the optimizer and master_weights sections as DeepSpeed's flat groups, zero=3 all sections
// as its slots.
#include <fmt/core.h>

#include "base/text.hpp"
#include "cairn/error.hpp"
#include "shard/bind.hpp"

namespace cairn::shard {
namespace {

bool is_one(const LayoutRules& rules, std::uint32_t axis) { return rules.axes[axis].size == 1; }

}  // namespace

ShortBinder::ShortBinder(const LayoutRules& rules, const Model& model)
    : rules_(rules), form_(*rules.short_form), model_(model) {
  if (rules.stages) {
    layers_.emplace(rules, *rules.stages);
    return;
  }
  const std::uint64_t chunks = rules.axes[form_.pp].size * form_.virtual_stages;
  if (chunks == 1 || model.layers == 0) return;
  if (model.layers % chunks != 0 && !form_.uneven) {
    throw Error(
        ErrorKind::kUsage,
        fmt::format("layout '{}': the {} layers of the model do not divide by {} pipeline chunks (pp={}, vpp={}); "
                    "add `uneven`, or list the layers of each stage in a JSON layout",
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

// FSDP2's rule where the family has none: with tp, pp or ep over all ranks, so that nothing is held whole everywhere.
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
  if (model_.family == "unknown") {
    notes.push_back(fmt::format("unknown model: every tensor is cut on dimension 0 over {}", ranks));
    return;
  }
  notes.push_back(fmt::format("{} to family {} and cut on dimension 0 over {}, the first is '{}'",
                              base::counted(unknown_count_, "tensor is unknown", "tensors are unknown"), model_.family,
                              ranks, base::printable(unknown_example_)));
}

}  // namespace cairn::shard
