// The 22 element types of safetensors, in the order of the reference implementation.
//
// The order matters: files are written with dtypes in descending enum order (src/format/FORMAT.md), so the values are
// part of the disk format. Types below 8 bits are packed; their shapes count logical elements.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace cairn {

enum class DType : std::uint8_t {
  kBool,
  kF4,
  kF6E2M3,
  kF6E3M2,
  kU8,
  kI8,
  kF8E5M2,
  kF8E4M3,
  kF8E8M0,
  kF8E4M3Fnuz,
  kF8E5M2Fnuz,
  kI16,
  kU16,
  kF16,
  kBF16,
  kI32,
  kU32,
  kF32,
  kC64,
  kF64,
  kI64,
  kU64,
};

inline constexpr int kDTypeCount = 22;

namespace detail {
struct DTypeRow {
  std::string_view name;
  unsigned bits;
};
inline constexpr DTypeRow kDTypeTable[kDTypeCount] = {
    {"BOOL", 8},    {"F4", 4},      {"F6_E2M3", 6}, {"F6_E3M2", 6},     {"U8", 8},          {"I8", 8},
    {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}, {"I16", 16},
    {"U16", 16},    {"F16", 16},    {"BF16", 16},   {"I32", 32},        {"U32", 32},        {"F32", 32},
    {"C64", 64},    {"F64", 64},    {"I64", 64},    {"U64", 64},
};
}  // namespace detail

/// Size of one element in bits (4, 6, 8, 16, 32 or 64).
constexpr unsigned bits_of(DType dtype) { return detail::kDTypeTable[static_cast<int>(dtype)].bits; }

/// The name used in safetensors headers, e.g. "BF16".
constexpr std::string_view name_of(DType dtype) { return detail::kDTypeTable[static_cast<int>(dtype)].name; }

/// The dtype with this name in headers; case matters. Nothing if the name is unknown.
constexpr std::optional<DType> dtype_from_name(std::string_view name) {
  for (int i = 0; i < kDTypeCount; ++i) {
    if (detail::kDTypeTable[i].name == name) return static_cast<DType>(i);
  }
  return std::nullopt;
}

}  // namespace cairn
