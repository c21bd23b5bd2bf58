// What every entry asks of a parser: it accepts, or refuses with a cairn::Error whose message is one printable line.
#pragma once

#include <algorithm>
#include <functional>
#include <initializer_list>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

#include "cairn/error.hpp"

namespace cairn::fuzz {

inline void require(bool holds, const char* what) {
  if (!holds) throw std::logic_error(what);
}

/// The message of the refusal; nothing when `parse` accepted.
inline std::optional<std::string> refusal_of(const std::function<void()>& parse,
                                             std::initializer_list<ErrorKind> kinds) {
  try {
    parse();
    return std::nullopt;
  } catch (const Error& error) {
    const std::string_view message = error.what();
    require(std::ranges::find(kinds, error.kind()) != kinds.end(), "bad input must be an error of the stated kind");
    const auto control = [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; };
    require(std::ranges::none_of(message, control), "a message must be one printable line");
    return std::string(message);
  }
}

}  // namespace cairn::fuzz
