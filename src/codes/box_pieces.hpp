// A box cut into boxes of bounded size that lie end to end in its memory. Pure.
#pragma once

#include <cstdint>
#include <functional>

#include "cairn/box.hpp"

namespace cairn::checkpoint {

/// Calls `visit` with pieces of at most `limit_elements` (at least 1) each, in row-major order; together they are the box,
/// and each is contiguous in the box's memory. Few of them: as many whole rows as fit. None for an empty box.
void for_each_piece(const Box& box, std::uint64_t limit_elements, const std::function<void(const Box&)>& visit);

}  // namespace cairn::checkpoint
