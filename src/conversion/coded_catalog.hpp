// The result of a conversion: windows as ranges of tensors, the pieces to code, and the catalog.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "cairn/box.hpp"
#include "codes/coding_plan.hpp"
#include "plan/catalog.hpp"
#include "plan/extents.hpp"
#include "plan/file_layout.hpp"

namespace cairn::conversion {

// A window of a file layout as the ranges of tensors that fill it. Pure.

/// Consecutive bytes of one stored box in a window. `boxes` are their elements, end to end.
/// The window may cut an element, or a group of sub-byte elements; then the boxes cover a little more on both sides,
/// and `skip_bytes` of the loaded bytes come before the window's.
struct TensorRange {
  std::uint32_t tensor = 0;  ///< index into the layout's stored tensors
  std::vector<Box> boxes;
  std::uint64_t window_offset = 0;  ///< the place of the bytes in the window's buffer
  std::uint64_t bytes = 0;
  std::uint64_t skip_bytes = 0;
  std::uint64_t loaded_bytes = 0;  ///< bytes of the boxes; equals `bytes` if the window does not cut elements
};

/// Finds ranges of tensors by file offset. `layout` must outlive it.
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

// The pieces in which the codes of a window are made, and the moments that each of them needs. Pure.

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
  std::uint64_t window_offset = 0;  ///< the place in the window's buffer of bytes of the part's box,
  std::uint64_t bytes = 0;          ///< number of these bytes (0 while scales are measured),
  std::uint64_t from = 0;           ///< beginning with this one
};

/// Cuts a range of a part of `tensor` into items that fill it, of about `limit` elements each,
/// at least a block or the rows that share scales. Not for scales of whole tensors.
void add_items(const codes::CodedTensor& tensor, const PartOfPair& part, const TensorRange& range, std::uint64_t limit,
               std::vector<CodingItem>& out);

// The catalog of a conversion that codes moments, with the source tensors of each of its tensors. Pure.

/// Two moments of the source that become codes.
struct PairToCode {
  codes::CodedTensor tensor;
  std::uint32_t first = 0;  ///< numbers in the source's catalog
  std::uint32_t second = 0;
};

/// The origin of a tensor to be written.
struct TensorOrigin {
  std::uint32_t source = 0;  ///< a tensor of the source, unchanged; or
  std::optional<std::uint32_t> pair;
  std::size_t part = 0;  ///< number of the part in the pair's codec
};

struct CodedCatalog {
  plan::Catalog catalog;
  std::vector<TensorOrigin> origins;  ///< of each tensor of the catalog
  std::vector<PairToCode> pairs;
};

/// Every tensor unchanged.
CodedCatalog plain_catalog(const plan::Catalog& source);

/// Throws Error(kUsage) for a moment that is not F32, Error(kState) for a moment whose partner is missing or has a
/// different shape.
CodedCatalog code_catalog(const plan::Catalog& source, const std::map<std::string, const quant::Codec*>& codecs);

}  // namespace cairn::conversion
