// The value of every element of a made-up training state, as a function of where the element is.
//
// Element i of a tensor depends on (section, name, i) alone, so that any rank can check any part of a checkpoint in any
// layout without the original. Counter-based: 64 bits per word j from SplitMix64's finalizer over seed + j * golden
// ratio (Steele, Lea, Flood 2014), a word holding 64 / bits elements, little-endian. A mask and an addition on the whole
// word turn BF16, F16, F32 and F64 lanes into finite numbers with magnitude in [2^-8, 1); other dtypes keep raw bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "cairn/box.hpp"
#include "cairn/dtype.hpp"

namespace cairn::bench {

class DemoValues {
 public:
  /// Throws Error(kUsage) for dtypes below 8 bits. Second moments ("…/moment2_0") are never negative.
  DemoValues(std::string_view section, std::string_view name, DType dtype);

  /// Writes elements [first, first + out.size() / element size) of the tensor.
  void fill(std::uint64_t first, std::span<std::byte> out) const;

  /// First element in [first, ...) whose bytes in `found` are not its value's.
  [[nodiscard]] std::optional<std::uint64_t> first_difference(std::uint64_t first,
                                                              std::span<const std::byte> found) const;

  [[nodiscard]] std::uint64_t element_bytes() const { return element_bytes_; }

 private:
  [[nodiscard]] std::uint64_t word(std::uint64_t index) const;

  std::uint64_t seed_;
  std::uint64_t element_bytes_;
  std::uint64_t mask_ = ~0ULL;
  std::uint64_t base_ = 0;
};

/// Fills a box of a tensor of `shape`, whose elements lie row-major in `memory` (exactly its bytes).
void fill_box(const DemoValues& values, std::span<const std::uint64_t> shape, const Box& box,
              std::span<std::byte> memory);

/// Flat element index, in the whole tensor, of the first element of the box that is not as filled.
std::optional<std::uint64_t> check_box(const DemoValues& values, std::span<const std::uint64_t> shape, const Box& box,
                                       std::span<const std::byte> memory);

}  // namespace cairn::bench
