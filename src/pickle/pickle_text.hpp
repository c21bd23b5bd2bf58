// Integers of any length and escaped strings of pickles. Only for pickle_reader.cpp.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace cairn::pickle {

class PickleInteger {
 public:
  /// Little-endian, two's complement; none is 0.
  static PickleInteger from_bytes(std::string_view bytes);
  /// "-12"; nothing for any other string, or for more than 1,200 digits.
  static std::optional<PickleInteger> from_decimal(std::string_view digits);

  [[nodiscard]] std::optional<std::int64_t> small() const;
  [[nodiscard]] std::string hexadecimal() const;  ///< "-0x1f"

 private:
  std::string magnitude_;  ///< little-endian bytes, the last one not 0
  bool is_negative_ = false;
};

/// The line of an opcode STRING, such as 'it\'s\x00', as bytes. False for an invalid line.
bool unescape_quoted(std::string_view line, std::string& out);

/// The line of an opcode UNICODE, Latin-1 with \uXXXX and \UXXXXXXXX, as UTF-8. False for an invalid line.
bool unescape_unicode(std::string_view line, std::string& out);

}  // namespace cairn::pickle
