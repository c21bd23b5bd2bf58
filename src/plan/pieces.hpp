// The logical description of data, in elements: boxes of tensors that ranks hold in memory, or load from files.
// runs.hpp has the physical description.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "cairn/box.hpp"
#include "cairn/memory.hpp"
#include "format/limits.hpp"

namespace cairn::plan {

/// The largest number of dimensions of a box that ranks exchange.
inline constexpr std::size_t kMaxDimensions = format::limits::kDimensions;

/// A box of a tensor in this rank's memory: row-major, with gaps if it has strides, or turned (tensor_map.hpp). Memory
/// boxes are numbered by their position in a list.
struct MemoryBox {
  std::uint32_t tensor = 0;  ///< index into a list of tensors that the creator of the box chooses
  Box box;
  std::span<std::byte> bytes;  ///< from the first to the last element; saves only read them
  Memory memory = Memory::kHost;
  std::vector<std::uint64_t> strides = {};  ///< as in strides.hpp; empty: no gaps, and `bytes` holds only the box
};

inline bool is_on_device(const MemoryBox& box) { return box.memory == Memory::kDevice; }

/// A part of memory box number `local` of `rank` that is claimed, to be provided, or wanted. In global coordinates.
struct Piece {
  std::uint32_t tensor = 0;
  std::uint32_t local = 0;
  int rank = 0;
  Box box;

  friend bool operator==(const Piece&, const Piece&) = default;
};

/// One piece for each memory box, covering the whole box.
inline std::vector<Piece> whole_pieces(int rank, std::span<const MemoryBox> memory) {
  std::vector<Piece> pieces;
  pieces.reserve(memory.size());
  for (const MemoryBox& box : memory) {
    pieces.push_back({box.tensor, static_cast<std::uint32_t>(pieces.size()), rank, box.box});
  }
  return pieces;
}

}  // namespace cairn::plan
