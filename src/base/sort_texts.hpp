// Sorts many similar strings, such as names of tensors, eight bytes at a time instead of comparing whole strings.
//
// The time is linear in the bytes of the strings, apart from sorting numbers, so no choice of names makes this slow.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace cairn::base {

/// Indices of the strings, sorted by the strings' bytes; equal strings keep their given order.
std::vector<std::uint32_t> order_of_texts(std::span<const std::string_view> texts);

/// Indices of two equal strings: `second` is the first string that equals an earlier one, `first` the earliest equal
/// string. Found by sorting, since an attacker could choose names that make a hash table slow.
struct EqualTexts {
  std::uint32_t first = 0;
  std::uint32_t second = 0;
};
std::optional<EqualTexts> first_equal_texts(std::span<const std::string_view> texts);

}  // namespace cairn::base
