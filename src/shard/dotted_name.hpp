// The search for a known name inside a longer dotted one, such as a parameter in "optim.state.<parameter>.exp_avg".
#pragma once

#include <algorithm>
#include <cstddef>
#include <string_view>

namespace cairn::shard {

/// The first part of `name`, whole words between dots, that `is_known` accepts: fewest words dropped in front, then
/// fewest behind. Empty when there is none, and for names of more than 64 words or 1,024 bytes, which no framework
/// writes: the search takes time that grows with the cube of the words.
template <class Predicate>
std::string_view known_part_of(std::string_view name, const Predicate& is_known) {
  constexpr std::size_t kMostBytes = 1024;
  constexpr std::ptrdiff_t kMostDots = 63;
  if (is_known(name)) return name;
  if (name.size() > kMostBytes || std::ranges::count(name, '.') > kMostDots) return {};
  for (std::size_t begin = 0;;) {
    for (std::string_view rest = name.substr(begin); !rest.empty();) {
      if (is_known(rest)) return rest;
      const std::size_t dot = rest.rfind('.');
      rest = dot == std::string_view::npos ? std::string_view{} : rest.substr(0, dot);
    }
    const std::size_t dot = name.find('.', begin);
    if (dot == std::string_view::npos) return {};
    begin = dot + 1;
  }
}

}  // namespace cairn::shard
