#include "conversion/compare_elements.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <utility>

#include "base/internal_error.hpp"
#include "quant/cast.hpp"

namespace cairn::conversion {
namespace {

__extension__ using Wide = __int128;  // holds any integer element, and the difference of any two

bool is_integer(DType dtype) {
  switch (dtype) {
    case DType::kBool:
    case DType::kU8:
    case DType::kI8:
    case DType::kI16:
    case DType::kU16:
    case DType::kI32:
    case DType::kU32:
    case DType::kI64:
    case DType::kU64: return true;
    default: return false;
  }
}

/// Calls visit(T{}) with the C++ type of an integer dtype.
template <class Visit>
void with_integer(DType dtype, const Visit& visit) {
  switch (dtype) {
    case DType::kBool:
    case DType::kU8: return visit(std::uint8_t{});
    case DType::kI8: return visit(std::int8_t{});
    case DType::kI16: return visit(std::int16_t{});
    case DType::kU16: return visit(std::uint16_t{});
    case DType::kI32: return visit(std::int32_t{});
    case DType::kU32: return visit(std::uint32_t{});
    case DType::kI64: return visit(std::int64_t{});
    case DType::kU64: return visit(std::uint64_t{});
    default: throw base::internal_error("with_integer: not an integer dtype");
  }
}

template <class T>
T element_at(std::span<const std::byte> data, std::size_t i) {
  T value{};
  std::memcpy(&value, &data[i * sizeof(T)], sizeof(T));
  return value;
}

/// The largest integer that is not above the tolerance.
Wide whole_part(long double tolerance) {
  constexpr long double kEnough = 0x1p100L;  // above every difference
  return static_cast<Wide>(std::min(std::floor(tolerance), kEnough));
}

template <class A, class B>
void compare_integers(const Elements& elements, long double absolute, Findings& found) {
  const Wide most = whole_part(absolute);
  for (std::size_t i = 0; i < elements.bytes_a.size() / sizeof(A); ++i) {
    const auto a = element_at<A>(elements.bytes_a, i);
    const auto b = element_at<B>(elements.bytes_b, i);
    if (std::cmp_equal(a, b)) continue;
    const Wide difference = std::cmp_less(a, b) ? Wide{b} - Wide{a} : Wide{a} - Wide{b};
    ++found.differing;
    if (difference > most) ++found.outside;
    const Wide shown = std::min<Wide>(difference, std::numeric_limits<std::uint64_t>::max());
    found.largest = std::max(found.largest, static_cast<std::uint64_t>(shown));
  }
}

void compare_integers(const Elements& elements, long double absolute, Findings& found) {
  with_integer(elements.dtype_a, [&]<class A>(A) {
    with_integer(elements.dtype_b, [&]<class B>(B) { compare_integers<A, B>(elements, absolute, found); });
  });
}

/// The largest difference that is close to b. Sums are those of F64, as other programs have them, unless they overflow;
/// a whole number alone is exact, since a difference from an integer can be.
long double limit_of(const Tolerance& tolerance, double b) {
  if (tolerance.relative == 0 && std::floor(tolerance.absolute) == tolerance.absolute) return tolerance.absolute;
  const double limit = static_cast<double>(tolerance.absolute) + tolerance.relative * std::abs(b);
  if (std::isfinite(limit)) return limit;
  return tolerance.absolute + static_cast<long double>(tolerance.relative) * std::abs(b);
}

/// |a - b| in F64, or exactly where F64 overflows.
long double difference_of_floats(double a, double b) {
  const double difference = std::abs(a - b);
  const bool overflows = std::isinf(difference) && std::isfinite(a) && std::isfinite(b);
  return overflows ? std::abs(static_cast<long double>(a) - b) : difference;
}

/// Adds two values that differ. `difference` is NaN for NaN against a number, and for opposite infinities.
void add_floats(long double difference, double b, const Tolerance& tolerance, Findings& found) {
  if (std::isnan(difference)) difference = std::numeric_limits<double>::infinity();
  const bool is_close = !tolerance.is_none() && !std::isinf(difference) && difference <= limit_of(tolerance, b);
  ++found.differing;
  if (!is_close) ++found.outside;
  if (!std::isinf(difference)) difference = std::min<long double>(difference, std::numeric_limits<double>::max());
  // Doubles that are not negative are in the order of their bits.
  found.largest = std::max(found.largest, std::bit_cast<std::uint64_t>(static_cast<double>(difference)));
}

void compare_floats(const Elements& elements, const Tolerance& tolerance, Findings& found) {
  const auto& [dtype_a, dtype_b, bytes_a, bytes_b] = elements;
  const std::vector<double> x = decode_values(dtype_a, bytes_a);
  const std::vector<double> y = decode_values(dtype_b, bytes_b);
  const std::size_t width = bits_of(dtype_a) / 8;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const bool is_equal = x[i] == y[i] || (std::isnan(x[i]) && std::isnan(y[i]));
    const bool differs =
        dtype_a == dtype_b ? std::memcmp(&bytes_a[i * width], &bytes_b[i * width], width) != 0 : !is_equal;
    if (differs) add_floats(is_equal ? 0 : difference_of_floats(x[i], y[i]), y[i], tolerance, found);
  }
}

/// |whole - value|, and 0 only if they are equal.
template <class T>
long double difference_of_both(T whole, double value) {
  const bool fits = std::abs(value) < 0x1p100 && std::trunc(value) == value;
  if (!fits) return std::abs(static_cast<double>(whole) - value);
  const Wide difference = Wide{whole} - static_cast<Wide>(value);
  return static_cast<long double>(difference < 0 ? -difference : difference);
}

/// An integer dtype against a float dtype, in either order.
void compare_integers_with_floats(const Elements& elements, const Tolerance& tolerance, Findings& found) {
  const bool is_first = is_integer(elements.dtype_a);
  const auto whole_bytes = is_first ? elements.bytes_a : elements.bytes_b;
  const std::vector<double> values =
      is_first ? decode_values(elements.dtype_b, elements.bytes_b) : decode_values(elements.dtype_a, elements.bytes_a);
  with_integer(is_first ? elements.dtype_a : elements.dtype_b, [&]<class T>(T) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      const T whole = element_at<T>(whole_bytes, i);
      const long double difference = difference_of_both(whole, values[i]);
      if (difference != 0) add_floats(difference, is_first ? values[i] : static_cast<double>(whole), tolerance, found);
    }
  });
}

void compare_bits(const Elements& elements, Findings& found) {
  const unsigned bits = bits_of(elements.dtype_a);
  const std::size_t group_bytes = std::lcm<std::size_t>(8, bits) / 8;
  for (std::size_t at = 0; at < elements.bytes_a.size(); at += group_bytes) {
    const std::size_t bytes = std::min(group_bytes, elements.bytes_a.size() - at);
    std::uint64_t flipped = 0;
    for (std::size_t i = 0; i < bytes; ++i) {
      const std::byte byte = elements.bytes_a[at + i] ^ elements.bytes_b[at + i];
      flipped |= std::to_integer<std::uint64_t>(byte) << (8 * i);
    }
    if (flipped == 0) continue;
    const std::uint64_t element = ~std::uint64_t{0} >> (64 - bits);
    for (unsigned first = 0; first < 8 * bytes; first += bits) {
      if (((flipped >> first) & element) != 0) ++found.differing;
    }
  }
  found.outside = found.differing;
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
  std::vector<double> out(data.size() * 8 / bits_of(dtype));
  quant::cast_values(dtype, data, DType::kF64, std::as_writable_bytes(std::span(out)));
  return out;
}

Rule rule_of(DType a, DType b) {
  if (a == b && (a == DType::kBool || !has_values(a))) return Rule::kBits;
  return is_integer(a) && is_integer(b) ? Rule::kIntegers : Rule::kFloats;
}

std::string_view name_of(Rule rule) {
  switch (rule) {
    case Rule::kIntegers: return "integers";
    case Rule::kFloats: return "floats";
    case Rule::kBits: return "bits";
  }
  return "unknown";
}

Difference difference_of(std::uint64_t largest, DType a, DType b) {
  if (is_integer(a) && is_integer(b)) return largest;
  return std::bit_cast<double>(largest);
}

Findings compare_elements(const Elements& elements, const Tolerance& tolerance) {
  Findings found;
  switch (rule_of(elements.dtype_a, elements.dtype_b)) {
    case Rule::kIntegers: compare_integers(elements, tolerance.absolute, found); break;
    case Rule::kFloats:
      if (is_integer(elements.dtype_a) || is_integer(elements.dtype_b)) {
        compare_integers_with_floats(elements, tolerance, found);
      } else {
        compare_floats(elements, tolerance, found);
      }
      break;
    case Rule::kBits:
      if (has_values(elements.dtype_a)) {
        compare_integers(elements, 0, found);  // BOOL
      } else {
        compare_bits(elements, found);
      }
      break;
  }
  return found;
}

}  // namespace cairn::conversion
