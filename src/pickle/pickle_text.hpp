// Integers of any length and escaped strings of pickles. Only for pickle_reader.cpp.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace cairn::pickle {

class PickleInteger {
 public:
  /// From little-endian bytes in two's complement; an empty string is 0.
  static PickleInteger from_bytes(std::string_view bytes);
  /// From decimal digits, such as "-12"; nothing for any other string, or for more than 1,200 digits.
  static std::optional<PickleInteger> from_decimal(std::string_view digits);

  [[nodiscard]] std::optional<std::int64_t> small() const;
  [[nodiscard]] std::string hexadecimal() const;  ///< "-0x1f"

 private:
  std::string magnitude_;  ///< little-endian bytes, the last one not 0
  bool is_negative_ = false;
};

/// Decodes the line of a STRING opcode, such as 'it\'s\x00', to bytes. False for an invalid line.
bool unescape_quoted(std::string_view line, std::string& out);

/// Decodes the line of a UNICODE opcode, Latin-1 with \uXXXX and \UXXXXXXXX, to UTF-8. False for an invalid line.
bool unescape_unicode(std::string_view line, std::string& out);

}  // namespace cairn::pickle
