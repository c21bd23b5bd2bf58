// A map of tensors: the parts of source tensors that make the tensors that another system, or a load, needs. Pure.
//
// A target is a source, perhaps under another name, or consists of pieces: boxes of sources, each with a place in the
// target and an order of its dimensions. So tensors can be renamed, split, joined and transposed; the values of
// elements do not change.
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
  Box box;                           ///< in the source
  std::vector<std::uint64_t> at;     ///< offset of the piece in the target
  std::vector<std::uint32_t> order;  ///< for each dimension of the target, the dimension of the source
};

struct TensorMap {
  Catalog catalog;                                        ///< the targets
  std::vector<std::uint32_t> sources;                     ///< source of each target; unused if the target has pieces
  std::map<std::uint32_t, std::vector<MapPiece>> pieces;  ///< by number of the target
};

/// The map whose targets are the unchanged sources.
TensorMap as_they_are(const Catalog& sources);
/// A piece that is a whole source with its dimensions in reverse order.
MapPiece reversed(std::uint32_t source, std::span<const std::uint64_t> shape);

/// Sorts the targets. Throws Error(kState) if a (section, name) appears twice.
TensorMap in_catalog_order(TensorMap map);

/// Throws Error(kUsage), naming the target, for an unknown source; pieces that overlap, leave gaps, do not fit source
/// or target, or have a different or sub-byte dtype; a target without pieces unlike its source in dtype or shape.
void check_map(const TensorMap& map, const Catalog& sources);

/// The part of a memory box of the target that a piece fills, as a memory box of the source; nullopt if piece and box
/// do not overlap. Strides are the target's (see is_turned()), none if dense. Requires: a dtype of whole bytes.
std::optional<MemoryBox> part_of_source(const MapPiece& piece, DType dtype, const MemoryBox& memory);

/// Whether the elements are not in row-major order in memory; copy_turned() must then copy them.
bool is_turned(const MemoryBox& memory);

/// Describes a copy, without gaps, of a part of a turned memory box, with its elements in the order of memory.
struct Upright {
  std::vector<std::uint64_t> strides;  ///< strides of the copy, by dimension of the box
  std::vector<Run> runs;               ///< runs that copy and memory share; file_offset is the offset in the copy
};
/// Requires: `box` lies in the memory box; a dtype of whole bytes.
Upright upright(DType dtype, const Box& box, const MemoryBox& memory);

/// Copies the elements that `box` has in common with `to`, which is host memory. `from` holds the elements of `box` in
/// row-major order, without gaps. Requires: a dtype of whole bytes.
void copy_turned(DType dtype, const Box& box, std::span<const std::byte> from, const MemoryBox& to);

}  // namespace cairn::plan
