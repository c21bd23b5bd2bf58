// Numbers or texts one after another. What {fmt} has for it is in a header that costs each unit many seconds to compile.
#pragma once

#include <string>
#include <string_view>
#include <type_traits>

namespace cairn::base {

/// "2, 3, 4".
template <class Range>
std::string joined(const Range& range, std::string_view separator = ", ") {
  std::string out;
  bool is_first = true;
  for (const auto& item : range) {
    if (!is_first) out += separator;
    is_first = false;
    if constexpr (std::is_integral_v<std::remove_cvref_t<decltype(item)>>) {
      out += std::to_string(item);
    } else {
      out += item;
    }
  }
  return out;
}

}  // namespace cairn::base
