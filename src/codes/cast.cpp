#include "codes/cast.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>

#include "cairn/error.hpp"

namespace cairn::checkpoint {
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
  // Zero or subnormal: a multiple of 2^-24, which F32 has exactly.
  return sign | std::bit_cast<std::uint32_t>(static_cast<float>(fraction) * 0x1p-24F);
}

/// `magnitude` without its lowest `bits`, to nearest, ties to even.
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
  std::uint32_t rounded = 0x7c00;  // infinity, also for what is too large
  if (magnitude > kInfinity) {
    rounded = 0x7e00 | (magnitude >> 13 & 0x3ff);
  } else if (magnitude >= 0x3880'0000 && magnitude < 0x4780'0000) {  // 2^-14 to 2^16; the carry may make infinity
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

}  // namespace

bool can_cast(DType from, DType to) {
  const auto is_half = [](DType dtype) { return dtype == DType::kBF16 || dtype == DType::kF16; };
  if (to == DType::kF32) return from == DType::kF32 || is_half(from);
  return from == DType::kF32 && is_half(to);
}

void cast_values(DType from, std::span<const std::byte> values, DType to, std::span<std::byte> out) {
  if (!can_cast(from, to) || values.size() / (bits_of(from) / 8) != out.size() / (bits_of(to) / 8)) {
    throw Error(ErrorKind::kInternal, fmt::format("cast of {} bytes of {} to {} bytes of {}", values.size(),
                                                  name_of(from), out.size(), name_of(to)));
  }
  if (from == to) {
    std::copy(values.begin(), values.end(), out.begin());
  } else if (from == DType::kBF16) {
    convert_all<std::uint16_t, std::uint32_t>(values, out, widen_bf16);
  } else if (from == DType::kF16) {
    convert_all<std::uint16_t, std::uint32_t>(values, out, widen_f16);
  } else if (to == DType::kBF16) {
    convert_all<std::uint32_t, std::uint16_t>(values, out, round_bf16);
  } else {
    convert_all<std::uint32_t, std::uint16_t>(values, out, round_f16);
  }
}

}  // namespace cairn::checkpoint
