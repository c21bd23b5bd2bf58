// The public face of a bound layout; the work is in bound_map.cpp.
#include "shard/shard_map.hpp"

#include <fmt/core.h>

#include "cairn/error.hpp"
#include "shard/bound_map.hpp"

namespace cairn::shard {

ShardMap::ShardMap(Layout layout, Model model, std::vector<std::string> sections, std::vector<TensorSpec> tensors)
    : layout_(std::move(layout)),
      model_(std::move(model)),
      sections_(std::move(sections)),
      tensors_(std::move(tensors)) {
  if (sections_.size() != tensors_.size()) {
    throw Error(ErrorKind::kInternal,
                fmt::format("ShardMap: {} sections for {} tensors", sections_.size(), tensors_.size()));
  }
  bound_ = std::make_shared<const BoundMap>(layout_, model_, sections_, tensors_);
  notes_ = bound_->notes();
}

std::vector<HeldTensor> ShardMap::held_by(int rank) const {
  if (rank < 0 || rank >= layout_.world_size()) {
    throw Error(ErrorKind::kInternal, fmt::format("ShardMap: rank {} of {}", rank, layout_.world_size()));
  }
  return bound_->held_by(static_cast<std::uint64_t>(rank));
}

}  // namespace cairn::shard
