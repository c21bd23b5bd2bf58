#include "codes/box_pieces.hpp"

#include <algorithm>

#include "shard/box_math.hpp"

namespace cairn::checkpoint {
namespace {

/// Cuts along `dimension`; the dimensions before it have length 1.
void cut(Box box, std::size_t dimension, std::uint64_t limit, const std::function<void(const Box&)>& visit) {
  if (shard::elements_of(box) <= limit) return visit(box);
  const std::uint64_t length = box.shape[dimension];
  const std::uint64_t first = box.offset[dimension];
  const std::uint64_t row_elements = shard::elements_of(box) / length;
  const std::uint64_t step = std::max<std::uint64_t>(limit / row_elements, 1);
  for (std::uint64_t at = 0; at < length; at += step) {
    box.offset[dimension] = first + at;
    box.shape[dimension] = std::min(step, length - at);
    if (row_elements <= limit) {
      visit(box);
    } else {
      cut(box, dimension + 1, limit, visit);
    }
  }
}

}  // namespace

void for_each_piece(const Box& box, std::uint64_t limit_elements, const std::function<void(const Box&)>& visit) {
  if (!shard::is_empty(box)) cut(box, 0, std::max<std::uint64_t>(limit_elements, 1), visit);
}

}  // namespace cairn::checkpoint
