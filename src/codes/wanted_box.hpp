// What a reader is asked to fill: memory boxes by number of the stored tensor. Readers of every kind check them alike.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "cairn/dtype.hpp"
#include "plan/pieces.hpp"

namespace cairn::checkpoint {

/// What a wanted box must be a box of.
struct WantedTensor {
  std::string_view name;
  DType dtype = DType::kF32;
  std::span<const std::uint64_t> shape;
};

/// Throws Error(kInternal) for a box that does not fit its tensor or its memory.
void check_wanted(const plan::MemoryBox& want, const WantedTensor& tensor);

}  // namespace cairn::checkpoint
