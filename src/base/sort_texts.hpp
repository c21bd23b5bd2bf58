// The order of many texts that are alike, as names of tensors are: by eight bytes at a time, never by whole texts.
//
// Time is linear in the bytes of the texts but for sorting numbers, so that no choice of names makes it slow.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace cairn::base {

/// Numbers of the texts in the order of their bytes; equal texts in the order in which they are given.
std::vector<std::uint32_t> order_of_texts(std::span<const std::string_view> texts);

/// Two equal texts: of all that are equal to one before them the first, and the first that it is equal to. Nothing when all
/// differ. Strangers choose names: a hash table of them can be made slow.
struct EqualTexts {
  std::uint32_t first = 0;
  std::uint32_t second = 0;
};
std::optional<EqualTexts> first_equal_texts(std::span<const std::string_view> texts);

}  // namespace cairn::base
