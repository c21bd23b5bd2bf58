// The pieces in which the codes of a window are made, and the moments that each of them needs. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "codes/coding_plan.hpp"
#include "export/window_regions.hpp"

namespace cairn::checkpoint {

/// Bytes of both moments of an element.
inline constexpr std::uint64_t kPairBytes = 2 * sizeof(float);

/// The stored tensor that is to be filled.
struct PartOfPair {
  std::uint32_t pair = 0;
  std::size_t part = 0;
};

/// A piece that is coded at once.
struct CodingItem {
  PartOfPair part;
  Box box;                     ///< of the codec's view: what is read and coded
  std::span<std::byte> out;    ///< where bytes of the part's box go,
  std::uint64_t out_from = 0;  ///< from this one on
};

/// Cuts a region of a part of `tensor` into items of about `limit` elements, at least a block or the rows that share scales.
/// They fill the region's memory. Not for scales of whole tensors.
void add_items(const CodedTensor& tensor, const PartOfPair& part, const WindowRegion& region, std::uint64_t limit,
               std::vector<CodingItem>& out);

}  // namespace cairn::checkpoint
