// Arithmetic that never wraps, except round_up(), since sizes come from files and users.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>

#include "base/internal_error.hpp"

namespace cairn::base {

constexpr std::optional<std::uint64_t> try_add(std::uint64_t a, std::uint64_t b) {
  std::uint64_t out = 0;
  if (__builtin_add_overflow(a, b, &out)) return std::nullopt;
  return out;
}

constexpr std::optional<std::uint64_t> try_mul(std::uint64_t a, std::uint64_t b) {
  std::uint64_t out = 0;
  if (__builtin_mul_overflow(a, b, &out)) return std::nullopt;
  return out;
}

/// Product of the dimensions, left to right; nothing on overflow. [2^63, 4, 0] overflows and [0, 2^63, 4] is 0,
/// as in safetensors.
constexpr std::optional<std::uint64_t> try_product(std::span<const std::uint64_t> shape) {
  std::uint64_t n = 1;
  for (const std::uint64_t d : shape) {
    const auto next = try_mul(n, d);
    if (!next) return std::nullopt;
    n = *next;
  }
  return n;
}

/// a + b, or Error(kInternal) naming `what`.
inline std::uint64_t add(std::uint64_t a, std::uint64_t b, const char* what) {
  if (const auto r = try_add(a, b)) return *r;
  throw internal_error(std::string("64-bit overflow in ") + what);
}

inline std::uint64_t mul(std::uint64_t a, std::uint64_t b, const char* what) {
  if (const auto r = try_mul(a, b)) return *r;
  throw internal_error(std::string("64-bit overflow in ") + what);
}

constexpr std::uint64_t ceil_div(std::uint64_t a, std::uint64_t b) { return a / b + (a % b != 0 ? 1 : 0); }

/// The smallest multiple of `unit` that is not below `a`; the caller ensures that the result does not wrap.
constexpr std::uint64_t round_up(std::uint64_t a, std::uint64_t unit) { return ceil_div(a, unit) * unit; }

/// The value as another integer type, or Error(kInternal) naming `what` if it does not fit.
template <class To, class From>
constexpr To narrow(From value, const char* what) {
  static_assert(std::is_integral_v<To> && std::is_integral_v<From>);
  if (!std::in_range<To>(value)) {
    throw internal_error(std::string(what) + " " + std::to_string(value) + " does not fit its type");
  }
  return static_cast<To>(value);
}

}  // namespace cairn::base
