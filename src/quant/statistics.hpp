// Statistics of a tensor put together from those of its boxes, in any order and any cut.
//
// A save on many ranks: each rank measures its boxes into statistics of the whole tensor (or of what its boxes touch); the
// arrays are then reduced over the ranks, element by element with each array's reduction. NaN wins over every number in
// both reductions, so that the result does not depend on the order. Reductions of libraries do not promise that for
// floating point: reduction_keys() turns all of it into one reduction of integers.
#pragma once

#include "quant/codec.hpp"

namespace cairn::quant {

/// NaN when either is NaN.
inline float reduced(Reduction reduction, float a, float b) {
  const bool takes_b = reduction == Reduction::kMax ? b > a : b < a;
  return takes_b || b != b ? b : a;
}

/// into[i] = reduced(into[i], from[i]). Requires equal lengths.
void merge(Reduction reduction, std::span<float> into, std::span<const float> from);

/// Takes `from` into `into` where their boxes meet. Throws Error(kInternal) when they are of different codecs or tensors.
void merge(Statistics& into, const Statistics& from);

/// All values of all arrays as integers below 2^32, of which the largest is the reduced one, whatever the array: the
/// element-wise maximum over ranks merges their statistics (of one box).
[[nodiscard]] std::vector<std::uint64_t> reduction_keys(const Statistics& statistics);

/// Replaces all values by those of the keys. Throws Error(kInternal) when there are more or fewer of them.
void take_reduction_keys(std::span<const std::uint64_t> keys, Statistics& statistics);

/// The index in an array of the statistic at `position` of the scales. Throws Error(kInternal) when a box of `length` along
/// the last dimension from there on is not covered.
[[nodiscard]] std::size_t index_in(const Statistics& statistics, const std::vector<std::uint64_t>& position,
                                   std::uint64_t length);

}  // namespace cairn::quant
