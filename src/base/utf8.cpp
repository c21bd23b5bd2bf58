// Table 3-7 of the Unicode standard, with a fast path over eight ASCII bytes at a time (headers are nearly all ASCII).
#include "base/utf8.hpp"

#include <cstdint>
#include <cstring>

namespace cairn::base {
namespace {

struct Sequence {
  std::size_t length;        // 0: not a leading byte
  unsigned char second_low;  // range of the second byte; the later ones are 80..BF
  unsigned char second_high;
};

Sequence sequence_of(unsigned char lead) {
  if (lead < 0x80) return {1, 0, 0};
  if (lead < 0xC2) return {0, 0, 0};
  if (lead < 0xE0) return {2, 0x80, 0xBF};
  if (lead == 0xE0) return {3, 0xA0, 0xBF};
  if (lead == 0xED) return {3, 0x80, 0x9F};
  if (lead < 0xF0) return {3, 0x80, 0xBF};
  if (lead == 0xF0) return {4, 0x90, 0xBF};
  if (lead < 0xF4) return {4, 0x80, 0xBF};
  if (lead == 0xF4) return {4, 0x80, 0x8F};
  return {0, 0, 0};
}

bool well_formed(std::string_view text, std::size_t at, Sequence sequence) {
  if (sequence.length == 0 || sequence.length > text.size() - at) return false;
  for (std::size_t i = 1; i < sequence.length; ++i) {
    const auto byte = static_cast<unsigned char>(text[at + i]);
    const unsigned char low = i == 1 ? sequence.second_low : 0x80;
    const unsigned char high = i == 1 ? sequence.second_high : 0xBF;
    if (byte < low || byte > high) return false;
  }
  return true;
}

}  // namespace

std::size_t find_invalid_utf8(std::string_view text) {
  std::size_t at = 0;
  while (at < text.size()) {
    std::uint64_t eight = 0;
    if (text.size() - at >= sizeof eight) {
      std::memcpy(&eight, text.data() + at, sizeof eight);
      if ((eight & 0x8080808080808080ULL) == 0) {
        at += sizeof eight;
        continue;
      }
    }
    const Sequence sequence = sequence_of(static_cast<unsigned char>(text[at]));
    if (!well_formed(text, at, sequence)) return at;
    at += sequence.length;
  }
  return std::string_view::npos;
}

}  // namespace cairn::base
