// Numbers of things in words.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace cairn::base {

/// "134,515,008".
inline std::string group_digits(std::uint64_t number) {
  std::string digits = std::to_string(number);
  for (std::size_t at = digits.size(); at > 3;) {
    at -= 3;
    digits.insert(at, ",");
  }
  return digits;
}

/// "1 file", "2,048 files"; `many` where an s is not enough: "1 tensor is", "2 tensors are".
inline std::string counted(std::uint64_t number, std::string_view one, std::string_view many = {}) {
  std::string text = group_digits(number) + " ";
  if (number == 1 || many.empty()) {
    text += one;
    if (number != 1) text += 's';
  } else {
    text += many;
  }
  return text;
}

}  // namespace cairn::base
