// A window of a file layout as the ranges of tensors that fill it, and the pieces in which its codes are made. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "cairn/box.hpp"
#include "cairn/dtype.hpp"
#include "codes/coding_plan.hpp"
#include "plan/extents.hpp"
#include "plan/file_layout.hpp"

namespace cairn::conversion {

/// The number of elements at whose multiples a flat range of a tensor can be cut: its boxes
/// (shard::boxes_of_flat_range) then have whole bytes. 1 for dtypes of 8 bits and more. For F4 and F6 it is 2 or 4, or,
/// where a row ends inside a byte, the elements of several rows.
std::uint64_t cut_step(DType dtype, std::span<const std::uint64_t> shape);

/// Consecutive bytes of one stored box in a window. `boxes` have the elements of these bytes, end to end.
/// The window may cut an element, or a step of sub-byte elements (cut_step); then the boxes cover a little more on both
/// sides, and `skip_bytes` of the loaded bytes come before the window's.
struct TensorRange {
  std::uint32_t tensor = 0;  ///< index into the layout's stored tensors
  std::vector<Box> boxes;
  std::uint64_t window_offset = 0;  ///< the place of the bytes in the window's buffer
  std::uint64_t bytes = 0;
  std::uint64_t skip_bytes = 0;
  std::uint64_t loaded_bytes = 0;  ///< bytes of the boxes; equals `bytes` if the window does not cut elements
};

/// Finds ranges of tensors by file offset. `layout` must outlive the index.
class LayoutIndex {
 public:
  explicit LayoutIndex(const plan::FileLayout& layout);
  [[nodiscard]] std::vector<TensorRange> ranges(const plan::Window& window) const;

 private:
  struct Place {
    std::uint32_t file = 0;
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
    std::uint32_t tensor = 0;
    std::uint32_t stored = 0;
  };
  void add_ranges(const plan::Extent& part, std::uint64_t window_offset, std::vector<TensorRange>& out) const;
  const plan::FileLayout& layout_;
  std::vector<Place> places_;  // ascending by (file, begin)
};

/// Bytes of both moments of an element.
inline constexpr std::uint64_t kPairBytes = 2 * sizeof(float);

/// A part of a pair: the stored tensor to be filled.
struct PartOfPair {
  std::uint32_t pair = 0;
  std::size_t part = 0;
};

/// A piece that is coded in one go.
struct CodingItem {
  PartOfPair part;
  Box box;                          ///< box of the codec's view that is read and coded
  std::uint64_t window_offset = 0;  ///< place of the item's bytes in the window's buffer
  std::uint64_t bytes = 0;          ///< number of the item's bytes; 0 while scales are measured
  std::uint64_t from = 0;           ///< offset of the item's first byte in the part's bytes of `box`
};

/// Cuts a range of a part of `tensor` into items that fill it, of about `limit` elements each,
/// at least a block or the rows that share scales. Not for scales that span whole columns.
void add_items(const codes::CodedTensor& tensor, const PartOfPair& part, const TensorRange& range, std::uint64_t limit,
               std::vector<CodingItem>& out);

}  // namespace cairn::conversion
