// Sorts many similar texts, such as names of tensors, eight bytes at a time instead of by comparing whole texts.
//
// Time is linear in the bytes of the texts, except for sorting numbers, so that no choice of names makes it slow.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace cairn::base {

/// Indices of the texts in byte order; equal texts keep the order in which they are given.
std::vector<std::uint32_t> order_of_texts(std::span<const std::string_view> texts);

/// `second` is the first text that equals an earlier one, `first` the earliest text that it equals. Found by sorting,
/// since names come from elsewhere: they could be chosen to make a hash table slow. Nothing when all texts differ.
struct EqualTexts {
  std::uint32_t first = 0;
  std::uint32_t second = 0;
};
std::optional<EqualTexts> first_equal_texts(std::span<const std::string_view> texts);

}  // namespace cairn::base
