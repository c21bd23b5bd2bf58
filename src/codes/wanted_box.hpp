// A box that a reader is to fill: readers of every kind take these.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "cairn/box.hpp"
#include "cairn/dtype.hpp"

namespace cairn::checkpoint {

/// `memory`: the box row-major, exactly its bytes.
struct WantedBox {
  std::uint32_t tensor = 0;  ///< index into OpenCheckpoint::stored.tensors
  Box box;
  std::span<std::byte> memory;
};

/// What a wanted box must be a box of.
struct WantedTensor {
  std::string_view name;
  DType dtype = DType::kF32;
  std::span<const std::uint64_t> shape;
};

/// Throws Error(kInternal) for a box that does not fit its tensor or its memory.
void check_wanted(const WantedBox& want, const WantedTensor& tensor);

}  // namespace cairn::checkpoint
