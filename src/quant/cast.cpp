#include "quant/cast.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>

#include "base/internal_error.hpp"

namespace cairn::quant {
namespace {

constexpr std::uint32_t kSign = 0x8000'0000;
constexpr std::uint32_t kInfinity = 0x7f80'0000;

std::uint32_t widen_bf16(std::uint16_t bits) { return std::uint32_t{bits} << 16; }

std::uint32_t widen_f16(std::uint16_t bits) {
  const std::uint32_t sign = std::uint32_t{bits} << 16 & kSign;
  const std::uint32_t exponent = std::uint32_t{bits} >> 10 & 0x1f;
  const std::uint32_t fraction = bits & 0x3ff;
  if (exponent == 0x1f) return sign | kInfinity | fraction << 13;
  if (exponent != 0) return sign | (exponent + 112) << 23 | fraction << 13;
  // Zero or subnormal: a multiple of 2^-24, which is exact in F32.
  return sign | std::bit_cast<std::uint32_t>(static_cast<float>(fraction) * 0x1p-24F);
}

std::uint32_t widen_e5m2(std::uint8_t bits) { return widen_f16(static_cast<std::uint16_t>(bits << 8)); }

/// Four exponent bits, three fraction bits, no infinity; NaN has all bits set except the sign.
std::uint32_t widen_e4m3(std::uint8_t bits) {
  const std::uint32_t sign = std::uint32_t{bits} << 24 & kSign;
  const std::uint32_t exponent = std::uint32_t{bits} >> 3 & 0xf;
  const std::uint32_t fraction = bits & 7;
  if ((bits & 0x7f) == 0x7f) return sign | kInfinity | 0x40'0000;
  if (exponent != 0) return sign | (exponent + 120) << 23 | fraction << 20;
  return sign | std::bit_cast<std::uint32_t>(static_cast<float>(fraction) * 0x1p-9F);
}

constexpr std::uint64_t kSign64 = 1ULL << 63;
constexpr std::uint64_t kInfinity64 = 0x7ffULL << 52;

std::uint64_t widen_f32(std::uint32_t bits) {
  if ((bits & ~kSign) > kInfinity) {  // NaN becomes quiet, as in hardware
    return std::uint64_t{bits & kSign} << 32 | kInfinity64 | std::uint64_t{bits & 0x7f'ffff} << 29 | 1ULL << 51;
  }
  return std::bit_cast<std::uint64_t>(static_cast<double>(std::bit_cast<float>(bits)));
}

std::uint32_t round_f32(std::uint64_t bits) {
  if ((bits & ~kSign64) > kInfinity64) {
    return static_cast<std::uint32_t>(bits >> 32 & kSign) | kInfinity | 0x40'0000 |
           static_cast<std::uint32_t>(bits >> 29 & 0x3f'ffff);
  }
  return std::bit_cast<std::uint32_t>(static_cast<float>(std::bit_cast<double>(bits)));
}

/// An F32 value that rounds to 16 bits like the F64 value. If the F64 value is not exact in F32, the result is the F32
/// neighbour whose last bit is 1, which never lies midway between two 16-bit values.
std::uint32_t round_to_odd(std::uint64_t bits) {
  const std::uint32_t nearest = round_f32(bits);
  const std::uint64_t back = widen_f32(nearest) & ~kSign64;
  const std::uint64_t magnitude = bits & ~kSign64;
  if (back == magnitude || magnitude > kInfinity64) return nearest;
  return (back > magnitude ? nearest - 1 : nearest) | 1;
}

/// `magnitude` without its lowest `bits` bits, rounded to nearest, ties to even.
std::uint32_t round_off(std::uint32_t magnitude, std::uint32_t bits) {
  const std::uint32_t half = 1U << (bits - 1);
  return (magnitude + (half - 1) + (magnitude >> bits & 1)) >> bits;
}

std::uint16_t round_bf16(std::uint32_t bits) {
  if ((bits & ~kSign) > kInfinity) return static_cast<std::uint16_t>(bits >> 16 | 0x40);  // quiet
  return static_cast<std::uint16_t>((bits & kSign) >> 16 | round_off(bits & ~kSign, 16));
}

std::uint16_t round_f16(std::uint32_t bits) {
  const std::uint32_t sign = bits >> 16 & 0x8000;
  const std::uint32_t magnitude = bits & ~kSign;
  std::uint32_t rounded = 0x7c00;  // infinity, also for values that are too large
  if (magnitude > kInfinity) {
    rounded = 0x7e00 | (magnitude >> 13 & 0x3ff);
  } else if (magnitude >= 0x3880'0000 && magnitude < 0x4780'0000) {  // 2^-14 to 2^16; a carry may give infinity
    rounded = round_off(magnitude - (112U << 23), 13);
  } else if (magnitude < 0x3880'0000) {  // subnormal: in units of 2^-24
    const std::uint32_t exponent = magnitude >> 23;
    const std::uint32_t fraction = (magnitude & 0x7f'ffff) | 0x80'0000;
    rounded = exponent < 102 ? 0 : round_off(fraction, 126 - exponent);
  }
  return static_cast<std::uint16_t>(sign | rounded);
}

template <class From, class To, class Convert>
void convert_all(std::span<const std::byte> values, std::span<std::byte> out, Convert convert) {
  for (std::size_t i = 0; i < values.size() / sizeof(From); ++i) {
    From from{};
    std::memcpy(&from, values.data() + i * sizeof from, sizeof from);
    const To to = convert(from);
    std::memcpy(out.data() + i * sizeof to, &to, sizeof to);
  }
}

/// Converts from dtypes whose values are exact in F32.
template <class From>
void convert_small(std::span<const std::byte> values, DType to, std::span<std::byte> out,
                   std::uint32_t (*widen)(From)) {
  switch (to) {
    case DType::kF64: return convert_all<From, std::uint64_t>(values, out, [&](From v) { return widen_f32(widen(v)); });
    case DType::kF16: return convert_all<From, std::uint16_t>(values, out, [&](From v) { return round_f16(widen(v)); });
    case DType::kBF16:
      return convert_all<From, std::uint16_t>(values, out, [&](From v) { return round_bf16(widen(v)); });
    default: return convert_all<From, std::uint32_t>(values, out, widen);
  }
}

void convert_f64(std::span<const std::byte> values, DType to, std::span<std::byte> out) {
  switch (to) {
    case DType::kF16:
      return convert_all<std::uint64_t, std::uint16_t>(values, out,
                                                       [](std::uint64_t v) { return round_f16(round_to_odd(v)); });
    case DType::kBF16:
      return convert_all<std::uint64_t, std::uint16_t>(values, out,
                                                       [](std::uint64_t v) { return round_bf16(round_to_odd(v)); });
    default: return convert_all<std::uint64_t, std::uint32_t>(values, out, round_f32);
  }
}

}  // namespace

bool is_float(DType dtype) {
  return dtype == DType::kF64 || dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16;
}

bool can_cast(DType from, DType to) {
  const auto is_half = [](DType dtype) { return dtype == DType::kBF16 || dtype == DType::kF16; };
  if (to == DType::kF32) return from == DType::kF32 || is_half(from);
  return from == DType::kF32 && is_half(to);
}

bool can_convert(DType from, DType to) {
  return from == to || (is_float(to) && (is_float(from) || from == DType::kF8E4M3 || from == DType::kF8E5M2));
}

void cast_values(DType from, std::span<const std::byte> values, DType to, std::span<std::byte> out) {
  if (!can_convert(from, to) || values.size() * bits_of(to) != out.size() * bits_of(from)) {
    throw base::internal_error(
        fmt::format("cast of {} bytes of {} to {} bytes of {}", values.size(), name_of(from), out.size(), name_of(to)));
  }
  if (from == to) {
    std::copy(values.begin(), values.end(), out.begin());
    return;
  }
  switch (from) {
    case DType::kF64: return convert_f64(values, to, out);
    case DType::kBF16: return convert_small<std::uint16_t>(values, to, out, widen_bf16);
    case DType::kF16: return convert_small<std::uint16_t>(values, to, out, widen_f16);
    case DType::kF8E4M3: return convert_small<std::uint8_t>(values, to, out, widen_e4m3);
    case DType::kF8E5M2: return convert_small<std::uint8_t>(values, to, out, widen_e5m2);
    default: return convert_small<std::uint32_t>(values, to, out, [](std::uint32_t bits) { return bits; });
  }
}

namespace {

/// Whether the bits without the sign are those of infinity, and whether they are below them.
struct Magnitude {
  bool is_infinite = false;
  bool is_finite = false;
};

Magnitude magnitude_at(DType dtype, std::span<const std::byte> values, std::size_t element) {
  const auto read = [&]<class Bits>(Bits infinity) {
    Bits bits{};
    std::memcpy(&bits, values.data() + element * sizeof bits, sizeof bits);
    bits = static_cast<Bits>(bits & static_cast<Bits>(~(Bits{1} << (8 * sizeof bits - 1))));
    return Magnitude{bits == infinity, bits < infinity};
  };
  switch (dtype) {
    case DType::kF64: return read(kInfinity64);
    case DType::kF32: return read(kInfinity);
    case DType::kF16: return read(std::uint16_t{0x7c00});
    case DType::kBF16: return read(std::uint16_t{0x7f80});
    default: return {};
  }
}

}  // namespace

std::uint64_t count_overflows(DType from, std::span<const std::byte> values, DType to, std::span<const std::byte> out) {
  const bool is_wider =
      from == DType::kF64 || (from != to && to == DType::kF16) || (from == DType::kF32 && to == DType::kBF16);
  if (!is_wider) return 0;
  std::uint64_t overflows = 0;
  for (std::size_t i = 0; i < out.size() * 8 / bits_of(to); ++i) {
    if (magnitude_at(to, out, i).is_infinite && magnitude_at(from, values, i).is_finite) ++overflows;
  }
  return overflows;
}

}  // namespace cairn::quant
