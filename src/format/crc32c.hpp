// CRC-32C (Castagnoli), and the CRC of a concatenation from the CRCs of its parts.
//
// Raw CRCs come from ISA-L. A CRC is linear over GF(2): with zero initial value and no final inversion ("raw"), raw(A
// || B) = raw(A) * x^(8|B|) xor raw(B). Ranks compute the raw CRC of their pieces and shift it to the piece's place in
// its block; the XOR over all pieces is the block's raw CRC, which finish_crc32c() turns into the standard CRC-32C.
// Source: Kadatch & Jenkins, "Everything we know about CRC but afraid to forget" (2007).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace cairn::format {

/// Standard CRC-32C of the bytes (init and final xor 0xffffffff); crc32c("123456789") = 0xe3069283.
std::uint32_t crc32c(std::span<const std::byte> data);

/// CRC-32C with initial value 0 and no final xor.
std::uint32_t raw_crc32c(std::span<const std::byte> data);

/// Raw CRC of the piece followed by `zero_bytes` zero bytes: raw * x^(8 * zero_bytes) mod P.
std::uint32_t shift_crc32c(std::uint32_t raw, std::uint64_t zero_bytes);

/// Standard CRC-32C of a message of `length_bytes` whose raw CRC is `raw`.
std::uint32_t finish_crc32c(std::uint32_t raw, std::uint64_t length_bytes);

/// Standard CRC of A || B from the standard CRCs of A and B.
std::uint32_t combine_crc32c(std::uint32_t a, std::uint32_t b, std::uint64_t b_bytes);

/// "has checksum 0000002a, e3069283 was written", for messages. `written` may be any number.
std::string mismatch_words(std::uint32_t found, std::uint64_t written);

/// Standard CRC-32C of bytes that arrive piece by piece.
class RunningCrc32c {
 public:
  void add(std::span<const std::byte> data) { value_ = combine_crc32c(value_, crc32c(data), data.size()); }
  [[nodiscard]] std::uint32_t value() const { return value_; }

 private:
  std::uint32_t value_ = 0;
};

}  // namespace cairn::format
