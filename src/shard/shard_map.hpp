// A layout bound to a list of tensors: the boxes of each rank, in the order of its memory.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cairn/box.hpp"
#include "cairn/tensor.hpp"
#include "shard/flat_layout.hpp"
#include "shard/layout.hpp"
#include "shard/model.hpp"

namespace cairn::shard {

/// A rank's shard of a tensor. The boxes lie end to end in the rank's memory, each row-major; adjacent boxes that form
/// one box are merged. Empty `boxes`: the rank has an empty shard. A tensor is not listed if it is absent on the rank,
/// or if the rank's part of its flat buffer (ZeRO and the like) does not hold any of it.
struct HeldTensor {
  std::uint32_t tensor = 0;  ///< index into the tensors of the map
  std::vector<Box> boxes;
};

class BoundMap;  // in shard_map.cpp

class ShardMap {
 public:
  /// `sections[i]` is the section of `tensors[i]`. Throws Error(kUsage) if the layout does not fit the
  /// tensors; the message names tensor, dimension and size if a dimension cannot be divided evenly.
  ShardMap(Layout layout, Model model, std::vector<std::string> sections, std::vector<Tensor> tensors);

  [[nodiscard]] const Layout& layout() const { return layout_; }
  [[nodiscard]] const std::vector<Tensor>& tensors() const { return tensors_; }

  /// Ascending by tensor. Throws Error(kInternal) for a rank outside the world. Safe to call from several threads.
  [[nodiscard]] std::vector<HeldTensor> held_by(int rank) const;

  /// Notes for the user, one line each ("unknown model: every tensor is cut on dimension 0 over 4 ranks").
  [[nodiscard]] const std::vector<std::string>& notes() const { return notes_; }

 private:
  Layout layout_;
  Model model_;
  std::vector<std::string> sections_;
  std::vector<Tensor> tensors_;
  std::vector<std::string> notes_;
  std::shared_ptr<const BoundMap> bound_;
};

}  // namespace cairn::shard
