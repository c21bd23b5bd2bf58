// From a layout to the rule of each given tensor: what a short form (with the model's family) or a JSON file says of
// it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "shard/layout_rules.hpp"
#include "shard/model.hpp"
#include "shard/tensor_facts.hpp"

namespace cairn::shard {

/// What holds for one tensor. Pointers lead into the LayoutRules.
struct TensorRule {
  std::vector<Cut> cuts;
  Where where;
  const FlatRule* flat = nullptr;    ///< the shard that `cuts` leave is cut again, as part of a flat buffer
  std::string buffer;                ///< tensors with equal text share the buffer
  const RankBoxes* boxes = nullptr;  ///< explicit boxes; then no cuts and no flat
};

/// By number (layer, expert): the coordinates of an axis that hold it.
struct NumberMap {
  NumberMap(const LayoutRules& rules, const Placement& placement);

  std::uint32_t axis = 0;
  std::vector<std::vector<std::uint64_t>> coordinates;
};

struct TensorToBind {
  const TensorSpec& spec;
  const std::string& section;
  const TensorFacts& facts;
};

/// Families and degrees of a short form.
class ShortBinder {
 public:
  /// Throws Error(kUsage) when layers or experts do not divide.
  ShortBinder(const LayoutRules& rules, const Model& model);
  [[nodiscard]] TensorRule bind(const TensorToBind& tensor);
  /// Lines for ShardMap::notes, after all tensors are bound.
  void add_notes(std::vector<std::string>& notes) const;

 private:
  [[nodiscard]] TensorRule bind_unknown(const TensorToBind& tensor);
  void place(const ShardRule& family, Where& where) const;
  [[nodiscard]] Cut tensor_parallel(const ShardRule& family) const;
  void add_flat(const TensorToBind& tensor, bool is_expert, TensorRule& rule) const;

  const LayoutRules& rules_;
  const ShortForm& form_;
  const Model& model_;
  std::optional<NumberMap> layers_;
  std::uint64_t unknown_count_ = 0;
  std::string unknown_example_;
};

/// The rules of a JSON file, first match first; what matches none falls to the base short form or to `otherwise`.
class JsonBinder {
 public:
  JsonBinder(const LayoutRules& rules, const Model& model);
  [[nodiscard]] TensorRule bind(const TensorToBind& tensor);
  void add_notes(std::vector<std::string>& notes) const;

 private:
  [[nodiscard]] TensorRule apply(const NameRule& rule, const Captures& captures, const TensorToBind& tensor) const;
  [[nodiscard]] TensorRule bind_otherwise(const TensorToBind& tensor);

  const LayoutRules& rules_;
  std::unique_ptr<ShortBinder> base_;
  std::optional<NumberMap> layers_;
  std::optional<NumberMap> experts_;
  std::vector<std::vector<std::vector<std::pair<bool, NamePattern>>>> groups_of_rule_;  ///< (excludes, pattern)
  std::uint64_t unmatched_count_ = 0;
  std::string unmatched_example_;
};

}  // namespace cairn::shard
