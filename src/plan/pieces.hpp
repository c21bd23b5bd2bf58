// What ranks have in memory and want from files, in elements: the logical description. plan/runs.hpp is the physical
// one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "cairn/box.hpp"
#include "cairn/memory.hpp"
#include "format/limits.hpp"

namespace cairn::plan {

/// Dimensions of a box that travels between ranks, at most.
inline constexpr std::size_t kMaxDimensions = format::limits::kDimensions;

/// A box of a tensor in this rank's memory, row-major, with gaps where it has strides. Memory boxes are numbered by their
/// place in a list.
struct MemoryBox {
  std::uint32_t tensor = 0;  ///< number in the list that whoever made the box goes by
  Box box;
  std::span<std::byte> bytes;  ///< from the first element to the last one; of a box to be saved only read
  Memory memory = Memory::kHost;
  std::vector<std::uint64_t> strides = {};  ///< of strides.hpp; none: without gaps, and `bytes` are exactly its own
};

inline bool is_on_device(const MemoryBox& box) { return box.memory == Memory::kDevice; }

/// `box` inside memory box number `local` of `rank`: claimed, to be provided, or wanted. Global coordinates.
struct Piece {
  std::uint32_t tensor = 0;
  std::uint32_t local = 0;
  int rank = 0;
  Box box;

  friend bool operator==(const Piece&, const Piece&) = default;
};

/// Each memory box as one piece.
inline std::vector<Piece> whole_pieces(int rank, std::span<const MemoryBox> memory) {
  std::vector<Piece> pieces;
  pieces.reserve(memory.size());
  for (const MemoryBox& box : memory) {
    pieces.push_back({box.tensor, static_cast<std::uint32_t>(pieces.size()), rank, box.box});
  }
  return pieces;
}

}  // namespace cairn::plan
