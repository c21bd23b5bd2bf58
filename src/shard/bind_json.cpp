// What a JSON layout says of a tensor: the first rule whose section and pattern match its name, or its parameter's
// name.
#include <fmt/core.h>

#include "base/text.hpp"
#include "cairn/error.hpp"
#include "shard/bind.hpp"

namespace cairn::shard {
namespace {

[[noreturn]] void fail(const std::string& what) { throw Error(ErrorKind::kUsage, "layout JSON: " + what); }

// The coordinates that hold layer or expert number `number` join the conditions.
void add_place(const NumberMap& map, std::uint64_t number, const TensorToBind& tensor, Where& where) {
  if (number >= map.coordinates.size() || map.coordinates[number].empty()) {
    fail(fmt::format("tensor '{}': number {} is placed on no coordinate", base::printable(tensor.spec.name), number));
  }
  where.conditions.push_back({map.axis, map.coordinates[number]});
}

}  // namespace

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
    out.buffer = fmt::format("{}|{}|{}", rule.flat->key, tensor.section, tensor.facts.role);  // DeepSpeed mixes dtypes
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
