// Requirements on every parser: it accepts, or refuses with a cairn::Error whose message is one printable line.
#pragma once

#include <algorithm>
#include <functional>
#include <initializer_list>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

#include "base/text.hpp"
#include "cairn/error.hpp"

namespace cairn::fuzz {

inline void require(bool holds, const char* what) {
  if (!holds) throw std::logic_error(what);
}

/// Requires a string without control characters (of 7 or 8 bits) and direction marks, which a terminal would obey.
inline void require_one_line(std::string_view text) {
  const auto is_control = [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; };
  require(std::ranges::none_of(text, is_control), "a message must be one printable line");
  require(base::is_utf8(text), "a message must be UTF-8");
  for (std::size_t at = 0; at + 1 < text.size(); ++at) {
    const std::string_view two = text.substr(at, 2);
    const auto next = static_cast<unsigned char>(two[1]);
    require(two[0] != '\xc2' || next >= 0xa0, "a message must have no controls of eight bits");
    if (two != "\xe2\x80" && two != "\xe2\x81") continue;
    const auto last = static_cast<unsigned char>(text[at + 2]);
    const bool turns = two[1] == '\x80' ? last == 0x8e || last == 0x8f || (last >= 0xa8 && last <= 0xae)
                                        : last >= 0xa6 && last <= 0xa9;
    require(!turns, "a message must not turn the direction of writing");
  }
}

/// The message of the refusal; nothing if `parse` accepted its input.
inline std::optional<std::string> refusal_of(const std::function<void()>& parse,
                                             std::initializer_list<ErrorKind> kinds) {
  try {
    parse();
    return std::nullopt;
  } catch (const Error& error) {
    const std::string_view message = error.what();
    require(std::ranges::find(kinds, error.kind()) != kinds.end(), "bad input must be an error of the stated kind");
    require_one_line(message);
    return std::string(message);
  }
}

}  // namespace cairn::fuzz
