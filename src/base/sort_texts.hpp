// Sorts many similar strings, such as names of tensors, eight bytes at a time instead of comparing whole strings.
//
// Time is linear in the bytes of the strings, except for sorting numbers, so that no choice of names makes it slow.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace cairn::base {

/// Indices of the strings in byte order; equal strings keep their given order.
std::vector<std::uint32_t> order_of_texts(std::span<const std::string_view> texts);

/// `second` is the first string that equals an earlier one, `first` the earliest equal string. Nothing if all strings
/// differ. Found by sorting, since an attacker could choose names that make a hash table slow.
struct EqualTexts {
  std::uint32_t first = 0;
  std::uint32_t second = 0;
};
std::optional<EqualTexts> first_equal_texts(std::span<const std::string_view> texts);

}  // namespace cairn::base
