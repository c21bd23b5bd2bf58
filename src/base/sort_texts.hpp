// The order of many texts that are alike, as names of tensors are: by eight bytes at a time, never by whole texts.
//
// Time is linear in the bytes of the texts but for sorting numbers, so that no choice of names makes it slow.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace cairn::base {

/// Numbers of the texts in the order of their bytes; equal texts in the order in which they are given.
std::vector<std::uint32_t> order_of_texts(std::span<const std::string_view> texts);

}  // namespace cairn::base
