// A map of tensors: builds the tensors that another system, or a load, needs from parts of source tensors. Pure.
//
// A target is a source under another name, or consists of pieces: boxes of sources,
// each with a place in the target and an order of its dimensions. So tensors are renamed, split, joined and transposed;
// the values of elements do not change.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "cairn/box.hpp"
#include "plan/catalog.hpp"
#include "plan/pieces.hpp"
#include "plan/runs.hpp"

namespace cairn::plan {

struct MapPiece {
  std::uint32_t source = 0;
  Box box;                           ///< of the source
  std::vector<std::uint64_t> at;     ///< its beginning in the target
  std::vector<std::uint32_t> order;  ///< for each dimension of the target, the dimension of the source
};

struct TensorMap {
  Catalog catalog;                                        ///< the targets
  std::vector<std::uint32_t> sources;                     ///< source of each target that has no pieces
  std::map<std::uint32_t, std::vector<MapPiece>> pieces;  ///< by number of the target
};

/// Every source unchanged.
TensorMap as_they_are(const Catalog& sources);
/// The whole of a source with its dimensions in reverse order.
MapPiece reversed(std::uint32_t source, std::span<const std::uint64_t> shape);

/// Sorts the targets. Throws Error(kState) if a (section, name) appears twice.
TensorMap in_catalog_order(TensorMap map);

/// Throws Error(kUsage), naming the target, if its pieces overlap, leave elements out, are outside their source or have
/// a different dtype, or if a dtype has fewer than 8 bits.
void check_map(const TensorMap& map, const Catalog& sources);

/// The part of a memory box of the target that a piece fills, as a memory box of the source; nothing if they do not
/// overlap. Its strides are those of the target's memory: see is_turned(). Requires: a dtype of whole bytes.
std::optional<MemoryBox> part_of_source(const MapPiece& piece, DType dtype, const MemoryBox& memory);

/// Whether the elements do not ascend in rows; then copy_turned() must copy them.
bool is_turned(const MemoryBox& memory);

/// The places of a part of a turned memory box in memory.
struct Upright {
  std::vector<std::uint64_t> strides;  ///< strides of a copy without gaps that has its elements in the order of the
                                       ///< memory box
  std::vector<Run> runs;               ///< file_offset is the offset in the copy
};
/// Requires: `box` lies in the memory box; a dtype of whole bytes.
Upright upright(DType dtype, const Box& box, const MemoryBox& memory);

/// Copies the elements that `box` has in common with a memory box on the host. `from` holds the elements of `box` end
/// to end. Requires: a dtype of whole bytes.
void copy_turned(DType dtype, const Box& box, std::span<const std::byte> from, const MemoryBox& to);

}  // namespace cairn::plan
