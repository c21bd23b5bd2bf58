// A layout bound to a list of tensors: which boxes each rank holds, in the order in which they lie in its memory.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "cairn/box.hpp"
#include "shard/layout.hpp"
#include "shard/model.hpp"

namespace cairn::shard {

/// What a rank holds of a tensor. The boxes lie end to end in the rank's memory, each row-major; adjacent boxes that
/// form one box are merged. Empty `boxes`: the rank has an empty shard; a tensor that is absent on the rank is not
/// listed at all.
struct HeldTensor {
  std::uint32_t tensor = 0;  ///< index into the tensors of the map
  std::vector<Box> boxes;
};

/// Where the pieces of a flat buffer (ZeRO, FSDP1, Megatron) lie in it.
struct FlatPiece {
  std::uint32_t tensor = 0;
  std::uint64_t begin = 0;  ///< flat elements of the tensor (of the TP shard of it, when it is cut by tp too)
  std::uint64_t end = 0;
  std::uint64_t at = 0;  ///< element of the rank's local buffer
};

class ShardMap {
 public:
  /// `sections[i]` names the section of `tensors[i]`. Throws Error(kUsage), one line naming tensor, dimension and number,
  /// when a dimension does not divide and the layout does not say `uneven`.
  ShardMap(Layout layout, Model model, std::vector<std::string> sections, std::vector<TensorSpec> tensors);

  [[nodiscard]] const Layout& layout() const { return layout_; }
  [[nodiscard]] const std::vector<TensorSpec>& tensors() const { return tensors_; }

  /// Ascending by tensor.
  [[nodiscard]] std::vector<HeldTensor> held_by(int rank) const;

  /// Things a user should know, one line each ("unknown model: every tensor is cut on dimension 0 over 4 ranks").
  [[nodiscard]] const std::vector<std::string>& notes() const { return notes_; }

 private:
  Layout layout_;
  Model model_;
  std::vector<std::string> sections_;
  std::vector<TensorSpec> tensors_;
  std::vector<std::string> notes_;
};

}  // namespace cairn::shard
