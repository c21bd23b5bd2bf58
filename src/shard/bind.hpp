// Finds a layout's rule for each given tensor: by a short form (with the model's family) or a JSON file.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cairn/tensor.hpp"
#include "shard/layout_rules.hpp"
#include "shard/model.hpp"

namespace cairn::shard {

// Facts about a tensor of a training state: the name of its parameter, its role, and whether it has the parameter's
// shape, so that the parameter's rule applies to the tensor.

struct TensorFacts {
  std::string_view parameter;     ///< name of its parameter; if that is unknown, base_name() of the tensor's name
  std::string role;               ///< the rest of the name, "/moment1_0"; empty for parameters
  bool follows_parameter = true;  ///< false: a scalar, or a shape that differs from the parameter's (beta1_pow_acc_0,
                                  ///< step)
  DType parameter_dtype = DType::kF32;
  std::uint64_t position = 0;  ///< order of the parameter in flat buffers: first the model's tensors, then the list's
};

/// One TensorFacts per tensor; the views point into `tensors`.
std::vector<TensorFacts> facts_of(const Model& model, const std::vector<std::string>& sections,
                                  const std::vector<Tensor>& tensors);

/// The rule of one tensor. Pointers point into the LayoutRules.
struct TensorRule {
  std::vector<Cut> cuts;
  Where where;
  const FlatRule* flat = nullptr;    ///< the shard after `cuts` is cut again, as part of a flat buffer
  std::string buffer;                ///< tensors with the same string share the buffer
  const RankBoxes* boxes = nullptr;  ///< explicit boxes; if set, `cuts` is empty and `flat` is null
};

/// For each layer or expert number: the coordinates of an axis that hold it.
struct NumberMap {
  NumberMap(const LayoutRules& rules, const Placement& placement);

  std::uint32_t axis = 0;
  std::vector<std::vector<std::uint64_t>> coordinates;
};

struct TensorToBind {
  const Tensor& spec;
  const std::string& section;
  const TensorFacts& facts;
};

/// Binds by families and the degrees of a short form.
class ShortBinder {
 public:
  /// Throws Error(kUsage) if layers cannot be divided evenly (without `uneven`); bind() does so for experts.
  ShortBinder(const LayoutRules& rules, const Model& model);
  [[nodiscard]] TensorRule bind(const TensorToBind& tensor);
  /// Adds lines for ShardMap::notes; call after all tensors are bound.
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

/// Binds a tensor by the first matching rule of a JSON file; if no rule matches, by the base short form or `otherwise`.
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
