#include "quant/non_finite.hpp"

#include <cstring>
#include <string>

#include "base/internal_error.hpp"

namespace cairn::quant {
namespace {

// Kinds of values: the type of their bits, and the rule that tells finite values from others.

/// A value is not finite if all bits of the exponent are set; it is then infinite if the rest is 0, otherwise NaN.
template <class Bits, Bits kExponent, Bits kRest>
struct Ieee {
  using Word = Bits;
  /// A word whose highest bit is set if and only if the value is not finite.
  static Word mark(Word bits) { return static_cast<Word>((bits & kExponent) + (kExponent & (~kExponent + 1))); }
  static bool is_nan(Word bits) { return (bits & kRest) != 0; }
};
using Double = Ieee<std::uint64_t, 0x7ff0000000000000, 0x000fffffffffffff>;
using Float = Ieee<std::uint32_t, 0x7f800000, 0x007fffff>;
using Half = Ieee<std::uint16_t, 0x7c00, 0x03ff>;
using Brain = Ieee<std::uint16_t, 0x7f80, 0x007f>;
using E5M2 = Ieee<std::uint8_t, 0x7c, 0x03>;

/// 0x7f and 0xff are NaN; there is no infinity.
struct E4M3 {
  using Word = std::uint8_t;
  static Word mark(Word bits) { return static_cast<Word>((bits & 0x7f) + 1); }
  static bool is_nan(Word) { return true; }
};

/// One bit pattern is NaN; there is no infinity.
template <std::uint8_t kNan>
struct OneNan {
  using Word = std::uint8_t;
  static Word mark(Word bits) { return bits == kNan ? 0x80 : 0; }
  static bool is_nan(Word) { return true; }
};

/// Number of values that are checked together; constant, so that the loop becomes vector code.
constexpr std::size_t kTogether = 512;

template <class Kind>
typename Kind::Word load(const std::byte* at) {
  typename Kind::Word bits;
  std::memcpy(&bits, at, sizeof bits);
  return bits;
}

template <class Kind>
bool is_marked(typename Kind::Word word) {
  return word >> (8 * sizeof word - 1) != 0;
}

template <class Kind>
NonFiniteCount count_each(const std::byte* at, std::size_t values) {
  NonFiniteCount count;
  for (std::size_t i = 0; i < values; ++i) {
    const auto bits = load<Kind>(at + i * sizeof(typename Kind::Word));
    if (is_marked<Kind>(Kind::mark(bits))) ++(Kind::is_nan(bits) ? count.nans : count.infinities);
  }
  return count;
}

template <class Kind>
NonFiniteCount count_all(std::span<const std::byte> bytes) {
  using Word = typename Kind::Word;
  NonFiniteCount count;
  const std::byte* at = bytes.data();
  std::size_t values = bytes.size() / sizeof(Word);
  for (; values >= kTogether; values -= kTogether, at += kTogether * sizeof(Word)) {
    Word marks = 0;
    for (std::size_t i = 0; i < kTogether; ++i) {
      marks = static_cast<Word>(marks | Kind::mark(load<Kind>(at + i * sizeof(Word))));
    }
    if (is_marked<Kind>(marks)) count += count_each<Kind>(at, kTogether);
  }
  count += count_each<Kind>(at, values);
  return count;
}

}  // namespace

bool can_be_nan(DType dtype) {
  switch (dtype) {
    case DType::kF64:
    case DType::kF32:
    case DType::kC64:
    case DType::kF16:
    case DType::kBF16:
    case DType::kF8E5M2:
    case DType::kF8E4M3:
    case DType::kF8E8M0:
    case DType::kF8E4M3Fnuz:
    case DType::kF8E5M2Fnuz: return true;
    default: return false;
  }
}

std::uint64_t value_bytes(DType dtype) { return dtype == DType::kC64 ? 4 : bits_of(dtype) / 8; }

NonFiniteCount count_non_finite(DType dtype, std::span<const std::byte> values) {
  switch (dtype) {
    case DType::kF64: return count_all<Double>(values);
    case DType::kF32:
    case DType::kC64: return count_all<Float>(values);
    case DType::kF16: return count_all<Half>(values);
    case DType::kBF16: return count_all<Brain>(values);
    case DType::kF8E5M2: return count_all<E5M2>(values);
    case DType::kF8E4M3: return count_all<E4M3>(values);
    case DType::kF8E8M0: return count_all<OneNan<0xff>>(values);
    case DType::kF8E4M3Fnuz:
    case DType::kF8E5M2Fnuz: return count_all<OneNan<0x80>>(values);
    default: throw base::internal_error("values of " + std::string(name_of(dtype)) + " are always finite");
  }
}

}  // namespace cairn::quant
