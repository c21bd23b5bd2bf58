// A layout bound to tensors, in the form that answers "what does rank r hold" quickly.
//
// Tensors of equal shape and cuts share a class, whose boxes are worked out once per call; so do tensors on the same
// ranks. A call then costs about one small copy per held tensor. Immutable after construction, so threads may share it.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "shard/bind.hpp"
#include "shard/shard_map.hpp"

namespace cairn::shard {

class BoundMap {
 public:
  /// Throws Error(kUsage).
  BoundMap(Layout layout, const Model& model, const std::vector<std::string>& sections,
           const std::vector<TensorSpec>& tensors);

  [[nodiscard]] std::vector<HeldTensor> held_by(std::uint64_t rank) const;
  /// What ShardMap::notes returns.
  [[nodiscard]] const std::vector<std::string>& notes() const { return notes_; }

 private:
  struct ShardClass {
    std::vector<std::uint64_t> shape;
    std::vector<Cut> cuts;
    const RankBoxes* boxes = nullptr;
  };
  struct Buffer {
    const FlatRule* rule = nullptr;
    std::uint64_t itemsize_bits = 32;    ///< of the parameters
    std::vector<std::uint32_t> tensors;  ///< in buffer order
  };
  struct Item {
    std::uint32_t shard_class = 0;
    std::uint32_t where = 0;
    bool flat = false;
  };
  /// The boxes of every class on one rank, worked out when first asked for.
  class RankView;

  void bind_all(const Model& model, const std::vector<std::string>& sections, const std::vector<TensorSpec>& tensors);
  std::uint32_t class_of(const TensorSpec& tensor, TensorRule&& rule);
  std::uint32_t where_of(Where&& where);
  void check_class(const ShardClass& shard, const std::string& name) const;
  void check_cut(const ShardClass& shard, const Cut& cut, std::vector<std::uint64_t>& sizes,
                 const std::string& name) const;
  [[nodiscard]] std::vector<Box> boxes_on(const ShardClass& shard, std::uint64_t rank) const;
  [[nodiscard]] bool is_on(const Where& where, std::uint64_t rank) const;
  void add_flat(const Buffer& buffer, RankView& view, std::vector<HeldTensor>& held) const;

  Layout layout_;
  const LayoutRules& rules_;
  std::vector<std::string> notes_;
  std::vector<Item> items_;  ///< by tensor
  std::vector<ShardClass> classes_;
  std::vector<Where> wheres_;
  std::vector<Buffer> buffers_;
  std::unordered_map<std::string, std::uint32_t> class_index_;
  std::unordered_map<std::string, std::uint32_t> where_index_;
};

}  // namespace cairn::shard
