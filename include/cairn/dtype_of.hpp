// The DType of a C++ type, so that a program does not state the dtype of its memory twice.
#pragma once

#include <concepts>
#include <cstddef>
#include <limits>
#include <optional>
#include <type_traits>

#include "cairn/dtype.hpp"

// CUDA's types, where its headers are installed. They are only declared: no header of CUDA is included.
#if __has_include(<cuda_fp16.h>)
struct __half;
struct __nv_bfloat16;
#endif
#if __has_include(<cuda_fp8.h>)
struct __nv_fp8_e4m3;
struct __nv_fp8_e5m2;
#endif

namespace cairn {

namespace detail {

template <class T>
inline constexpr bool kIsText = std::same_as<T, char> || std::same_as<T, wchar_t> || std::same_as<T, char8_t> ||
                                std::same_as<T, char16_t> || std::same_as<T, char32_t>;

constexpr std::optional<DType> integer_dtype(std::size_t bytes, bool is_signed) {
  switch (bytes) {
    case 1: return is_signed ? DType::kI8 : DType::kU8;
    case 2: return is_signed ? DType::kI16 : DType::kU16;
    case 4: return is_signed ? DType::kI32 : DType::kU32;
    case 8: return is_signed ? DType::kI64 : DType::kU64;
    default: return std::nullopt;
  }
}

/// `digits`: bits of the significand, with the leading one that is not stored, as in std::numeric_limits.
constexpr std::optional<DType> float_dtype(std::size_t bytes, int digits, int max_exponent) {
  if (bytes == 2 && digits == 11 && max_exponent == 16) return DType::kF16;
  if (bytes == 2 && digits == 8 && max_exponent == 128) return DType::kBF16;
  if (bytes == 4 && digits == 24 && max_exponent == 128) return DType::kF32;
  if (bytes == 8 && digits == 53 && max_exponent == 1024) return DType::kF64;
  return std::nullopt;
}

template <class T>
concept IsComplexFloat = sizeof(T) == 2 * sizeof(float) && requires(const T& value) {
  { value.real() } -> std::same_as<float>;
  { value.imag() } -> std::same_as<float>;
};

template <class T>
constexpr std::optional<DType> dtype_by_rule() {
  using Limits = std::numeric_limits<T>;
  if constexpr (std::same_as<T, bool>) {
    return sizeof(bool) == 1 ? std::optional(DType::kBool) : std::nullopt;
  } else if constexpr (kIsText<T>) {
    return std::nullopt;
  } else if constexpr (std::integral<T>) {
    return integer_dtype(sizeof(T), std::is_signed_v<T>);
  } else if constexpr (Limits::is_specialized) {
    return Limits::is_integer || Limits::radix != 2
               ? std::nullopt
               : float_dtype(sizeof(T), static_cast<int>(Limits::digits), static_cast<int>(Limits::max_exponent));
  } else if constexpr (IsComplexFloat<T>) {
    return DType::kC64;
  } else {
    return std::nullopt;
  }
}

}  // namespace detail

/// The dtype of memory of type T, as a member `value`. There are values for
///   - bool; signed and unsigned integers of 8 to 64 bits, but not char and other characters
///   - float and double, and every other type for which std::numeric_limits describes a float of 16, 32 or 64 bits:
///     F16 or BF16, such as std::float16_t and std::bfloat16_t of C++23 and Eigen's types
///   - std::complex<float>, and types like it: C64
///   - CUDA's __half, __nv_bfloat16, __nv_fp8_e4m3 and __nv_fp8_e5m2
/// Specialise it for your own type, whose size must be that of the dtype:
///   template <> struct cairn::DTypeOf<MyHalf> { static constexpr cairn::DType value = cairn::DType::kF16; };
template <class T>
struct DTypeOf;

template <class T>
requires(detail::dtype_by_rule<T>().has_value()) struct DTypeOf<T> {
  static constexpr DType value = *detail::dtype_by_rule<T>();
};

#if __has_include(<cuda_fp16.h>)
template <>
struct DTypeOf<__half> {
  static constexpr DType value = DType::kF16;
};
template <>
struct DTypeOf<__nv_bfloat16> {
  static constexpr DType value = DType::kBF16;
};
#endif
#if __has_include(<cuda_fp8.h>)
template <>
struct DTypeOf<__nv_fp8_e4m3> {
  static constexpr DType value = DType::kF8E4M3;
};
template <>
struct DTypeOf<__nv_fp8_e5m2> {
  static constexpr DType value = DType::kF8E5M2;
};
#endif

/// Whether T, const or not, has a dtype.
template <class T>
concept HasDType = requires {
  { DTypeOf<std::remove_cv_t<T>>::value } -> std::convertible_to<DType>;
};

/// dtype_of<float>() is DType::kF32. Does not compile for types without a dtype.
template <class T>
constexpr DType dtype_of() {
  static_assert(HasDType<T>, "this type has no dtype: specialise cairn::DTypeOf for it");
  return DTypeOf<std::remove_cv_t<T>>::value;
}

}  // namespace cairn
