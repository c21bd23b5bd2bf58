#include "export/values.hpp"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "cairn/error.hpp"

namespace cairn::checkpoint {
namespace {

/// A small float of 1 sign bit, `exponent` and `mantissa` bits, IEEE-like with subnormals.
struct SmallFloat {
  int exponent = 0;
  int mantissa = 0;
  int bias = 0;
  bool infinities = true;  ///< E4M3 (FN) has none: only all-ones is NaN
};

double decode_small(std::uint32_t bits, const SmallFloat& format) {
  const int all = 1 << format.exponent;
  const auto fraction = static_cast<int>(bits & ((1U << format.mantissa) - 1));
  const auto exponent = static_cast<int>(bits >> format.mantissa) & (all - 1);
  const double sign = (bits >> (format.exponent + format.mantissa) & 1) != 0 ? -1.0 : 1.0;
  const bool top = exponent == all - 1;
  if (top && format.infinities) {
    return fraction == 0 ? sign * std::numeric_limits<double>::infinity() : std::numeric_limits<double>::quiet_NaN();
  }
  if (top && fraction == (1 << format.mantissa) - 1) return std::numeric_limits<double>::quiet_NaN();
  const double scale = 1 << format.mantissa;
  if (exponent == 0) return sign * std::ldexp(fraction / scale, 1 - format.bias);
  return sign * std::ldexp(1.0 + fraction / scale, exponent - format.bias);
}

template <class T>
void decode_plain(std::span<const std::byte> data, std::vector<double>& out) {
  for (std::size_t at = 0; at + sizeof(T) <= data.size(); at += sizeof(T)) {
    T value{};
    std::memcpy(&value, data.data() + at, sizeof(T));
    out.push_back(static_cast<double>(value));
  }
}

void decode_floats(std::span<const std::byte> data, const SmallFloat& format, std::vector<double>& out) {
  const std::size_t width = static_cast<std::size_t>(1 + format.exponent + format.mantissa) / 8;
  for (std::size_t at = 0; at + width <= data.size(); at += width) {
    std::uint32_t bits = std::to_integer<std::uint32_t>(data[at]);
    if (width == 2) bits |= std::to_integer<std::uint32_t>(data[at + 1]) << 8;
    out.push_back(decode_small(bits, format));
  }
}

void decode_bf16(std::span<const std::byte> data, std::vector<double>& out) {
  for (std::size_t at = 0; at + 2 <= data.size(); at += 2) {
    const std::uint32_t bits = std::to_integer<std::uint32_t>(data[at]) | std::to_integer<std::uint32_t>(data[at + 1])
                                                                              << 8;
    out.push_back(static_cast<double>(std::bit_cast<float>(bits << 16)));
  }
}

}  // namespace

bool has_values(DType dtype) {
  switch (dtype) {
    case DType::kF4:
    case DType::kF6E2M3:
    case DType::kF6E3M2:
    case DType::kF8E8M0:
    case DType::kF8E4M3Fnuz:
    case DType::kF8E5M2Fnuz:
    case DType::kC64: return false;
    default: return true;
  }
}

std::vector<double> decode_values(DType dtype, std::span<const std::byte> data) {
  std::vector<double> out;
  out.reserve(data.size() * 8 / bits_of(dtype));
  switch (dtype) {
    case DType::kBool:
    case DType::kU8: decode_plain<std::uint8_t>(data, out); break;
    case DType::kI8: decode_plain<std::int8_t>(data, out); break;
    case DType::kI16: decode_plain<std::int16_t>(data, out); break;
    case DType::kU16: decode_plain<std::uint16_t>(data, out); break;
    case DType::kI32: decode_plain<std::int32_t>(data, out); break;
    case DType::kU32: decode_plain<std::uint32_t>(data, out); break;
    case DType::kI64: decode_plain<std::int64_t>(data, out); break;
    case DType::kU64: decode_plain<std::uint64_t>(data, out); break;
    case DType::kF32: decode_plain<float>(data, out); break;
    case DType::kF64: decode_plain<double>(data, out); break;
    case DType::kBF16: decode_bf16(data, out); break;
    case DType::kF16: decode_floats(data, {5, 10, 15, true}, out); break;
    case DType::kF8E5M2: decode_floats(data, {5, 2, 15, true}, out); break;
    case DType::kF8E4M3: decode_floats(data, {4, 3, 7, false}, out); break;
    default: throw Error(ErrorKind::kInternal, "decode_values: a dtype without values");
  }
  return out;
}

}  // namespace cairn::checkpoint
