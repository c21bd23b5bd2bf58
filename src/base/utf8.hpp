// Characters as UTF-8.
#pragma once

#include <cstdint>
#include <string>

namespace cairn::base {

/// Appends the character with this code, below 0x110000; a surrogate as three bytes, by the same rule.
inline void append_utf8(std::string& out, std::uint32_t code) {
  const auto put = [&](std::uint32_t byte) { out += static_cast<char>(byte); };
  const auto put_rest = [&](int shift) { put(0x80 | (code >> shift & 0x3F)); };
  if (code < 0x80) {
    put(code);
  } else if (code < 0x800) {
    put(0xC0 | code >> 6);
    put_rest(0);
  } else if (code < 0x10000) {
    put(0xE0 | code >> 12);
    put_rest(6);
    put_rest(0);
  } else {
    put(0xF0 | code >> 18);
    put_rest(12);
    put_rest(6);
    put_rest(0);
  }
}

}  // namespace cairn::base
