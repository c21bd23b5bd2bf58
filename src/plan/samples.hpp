// Which bytes of a box are compared with those of its replicas, and where they lie in a rank's memory. Pure.
//
// Bytes of a box are counted in its row-major order, without the gaps that a rank may have between its rows: so they
// are the same on all ranks, however each holds the box.
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

/// How much of a box is compared: the same on all ranks.
struct SampleRule {
  std::uint64_t whole_bytes = 64ULL << 10;  ///< boxes of up to so many are compared whole
  std::uint64_t places = 64;                ///< of larger ones so many, of kPlaceBytes each
};

/// What is sampled stays below this, or below a 64th of what there is: else states of very many small tensors would be
/// compared whole.
inline constexpr std::uint64_t kSampledBytes = 16ULL << 20;

/// Of the replicas of a rank, which have these bytes: the usual rule, or one of fewer places. Of several ranks the rule
/// with fewest places is good for all.
SampleRule sample_rule(std::span<const std::uint64_t> box_bytes);
/// The rule of so many places.
SampleRule rule_of_places(std::uint64_t places);

/// What is compared whole is so in pieces of this.
inline constexpr std::uint64_t kCompareBytes = 64ULL << 10;

/// Bytes of a box, without gaps.
std::uint64_t own_bytes(const MemoryBox& box);

/// What makes a box sampled elsewhere than another one, and than in another save: the same on all ranks that hold it.
/// `save` is any number that is another one for each save.
std::uint64_t sample_seed(std::uint64_t save, std::uint64_t tensor, const Box& box);

/// The ranges of a box that are compared: ascending.
class Sample {
 public:
  /// All bytes, in pieces of kCompareBytes.
  static Sample all(std::uint64_t box_bytes) { return Sample(box_bytes, {}); }
  /// The box in as many equal parts as the rule has places, of each one place, which the seed chooses: kPlaceBytes at a
  /// multiple of that, or what the box has left there. All of it where the rule says so.
  static Sample of(std::uint64_t box_bytes, std::uint64_t seed, const SampleRule& rule = {});

  [[nodiscard]] std::uint64_t size() const;
  [[nodiscard]] ByteRange operator[](std::uint64_t i) const;

 private:
  Sample(std::uint64_t box_bytes, std::vector<std::uint64_t> places)
      : box_bytes_(box_bytes), places_(std::move(places)) {}
  std::uint64_t box_bytes_;
  std::vector<std::uint64_t> places_;  ///< where they begin; none: all bytes
};

/// A box with gaps as rows: what its stretches are counted by.
struct RowsInMemory {
  explicit RowsInMemory(const MemoryBox& box);
  /// Where byte `at` of the box lies from box.bytes, and how many bytes follow from it on without a gap.
  [[nodiscard]] std::pair<std::uint64_t, std::uint64_t> find(std::uint64_t at) const;

  std::uint64_t row_bytes = 0;
  std::vector<std::uint64_t> counts;   ///< of the dimensions outside of a row, from the outermost
  std::vector<std::uint64_t> strides;  ///< in bytes
};

/// Calls visit(offset, bytes) for every stretch of memory of which bytes [range.begin, range.end) of the box consist,
/// in order. `offset` counts from box.bytes. Requires: the range is in the box.
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
