// Samples: the bytes of a box that are compared with its replicas, and their places in a rank's memory. Pure.
//
// Bytes of a box are counted in row-major order, without the gaps that a rank may have between rows, so they have the
// same numbers on all ranks.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "plan/pieces.hpp"

namespace cairn::plan {

/// Bytes [begin, end) of a box.
struct ByteRange {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;

  [[nodiscard]] std::uint64_t bytes() const { return end - begin; }
  friend bool operator==(const ByteRange&, const ByteRange&) = default;
};

inline constexpr std::uint64_t kPlaceBytes = 64;

/// The part of a box that is compared; the same on all ranks.
struct SampleRule {
  std::uint64_t whole_bytes = 64ULL << 10;  ///< boxes of up to this size are compared whole
  std::uint64_t places = 64;                ///< number of places of kPlaceBytes in a larger box
};

/// The limit on a rank's samples, in bytes, or a 64th of the rank's replicas if that is more. Without a limit, states
/// with very many small tensors would be compared whole.
inline constexpr std::uint64_t kSampledBytes = 16ULL << 20;

/// The rule for a rank whose replicas have these sizes: the usual rule, or a rule with fewer places. The rule with
/// the fewest places among all ranks' rules keeps every rank within its limit, if a single place per box can do so.
SampleRule sample_rule(std::span<const std::uint64_t> box_bytes);
/// The rule with this number of places, but at most the usual number.
SampleRule rule_of_places(std::uint64_t places);

/// Boxes that are compared whole are compared in pieces of this size.
inline constexpr std::uint64_t kCompareBytes = 64ULL << 10;

/// Bytes of a box, without gaps.
std::uint64_t own_bytes(const MemoryBox& box);

/// A seed for the places of a box: the same on all ranks that hold the box, but different for each box and save.
/// `save`: any number that differs between saves.
std::uint64_t sample_seed(std::uint64_t save, std::uint64_t tensor, const Box& box);

/// The ranges of a box that are compared, ascending.
class Sample {
 public:
  /// All bytes, in pieces of kCompareBytes.
  static Sample all(std::uint64_t box_bytes) { return Sample(box_bytes, {}); }
  /// All bytes of a small box (SampleRule::whole_bytes). Otherwise the box is divided into equal parts, one for each
  /// place of the rule, and the seed chooses the place in each part: kPlaceBytes, beginning at a multiple of
  /// kPlaceBytes, or fewer at the end of the box.
  static Sample of(std::uint64_t box_bytes, std::uint64_t seed, const SampleRule& rule = {});

  [[nodiscard]] std::uint64_t size() const;
  [[nodiscard]] ByteRange operator[](std::uint64_t i) const;

 private:
  Sample(std::uint64_t box_bytes, std::vector<std::uint64_t> places)
      : box_bytes_(box_bytes), places_(std::move(places)) {}
  std::uint64_t box_bytes_;
  std::vector<std::uint64_t> places_;  ///< first byte of each place; empty: all bytes
};

/// A box with gaps, described as rows without gaps.
struct RowsInMemory {
  explicit RowsInMemory(const MemoryBox& box);
  /// Offset of byte `at` of the box in box.bytes, and the number of bytes from there to the next gap.
  [[nodiscard]] std::pair<std::uint64_t, std::uint64_t> find(std::uint64_t at) const;

  std::uint64_t row_bytes = 0;
  std::vector<std::uint64_t> counts;   ///< sizes of the dimensions outside a row, outermost first
  std::vector<std::uint64_t> strides;  ///< strides of these dimensions, in bytes
};

/// Calls visit(offset, bytes) for every contiguous stretch of memory that holds bytes [range.begin, range.end) of the
/// box, in order. `offset` counts from the start of box.bytes. Requires: the range is in the box.
template <class Visit>
void for_each_stretch(const MemoryBox& box, const ByteRange& range, const Visit& visit) {
  if (range.begin == range.end) return;
  if (box.strides.empty()) return visit(range.begin, range.bytes());
  const RowsInMemory rows(box);
  for (std::uint64_t at = range.begin; at < range.end;) {
    const auto [offset, follow] = rows.find(at);
    const std::uint64_t bytes = std::min(follow, range.end - at);
    visit(offset, bytes);
    at += bytes;
  }
}

}  // namespace cairn::plan
