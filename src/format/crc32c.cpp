// CRC-32C through ISA-L, and multiplication in GF(2)[x] mod P to shift a CRC along a message.
//
// Polynomials are bit-reflected, as the CRC itself is: bit 31 is x^0, bit 0 is x^31. A shift by n bytes multiplies by
// x^(8n). A table has the powers x^(8 v 256^j) for each of the eight bytes of n, so a shift within a 4 MiB block, made
// for every piece of every tensor, costs at most three products of about 20 ns.
#include "format/crc32c.hpp"

#include <fmt/core.h>
#include <isa-l/crc.h>

#include <algorithm>
#include <array>

namespace cairn::format {
namespace {

constexpr std::uint32_t kPolynomial = 0x82f63b78;  // Castagnoli, reflected
constexpr std::uint32_t kOne = 0x80000000;         // x^0

constexpr std::uint32_t times_x(std::uint32_t a) { return a >> 1 ^ ((a & 1) != 0 ? kPolynomial : 0); }

/// kCarry[i] = x^4 times the polynomial whose four highest powers have the bits of i as coefficients, mod P.
constexpr std::array<std::uint32_t, 16> kCarry = [] {
  std::array<std::uint32_t, 16> table{};
  for (std::uint32_t i = 0; i < 16; ++i) table[i] = times_x(times_x(times_x(times_x(i))));
  return table;
}();

constexpr std::uint32_t product(std::uint32_t a, std::uint32_t b) {
  std::array<std::uint32_t, 16> multiple{};  // multiple[i]: b times the polynomial whose coefficients are the bits of i
                                             // (bit 3: x^0)
  multiple[8] = b;
  multiple[4] = times_x(b);
  multiple[2] = times_x(multiple[4]);
  multiple[1] = times_x(multiple[2]);
  for (std::uint32_t i = 3; i < 16; ++i) multiple[i] = multiple[i & (i - 1)] ^ multiple[i & (~i + 1)];
  std::uint32_t out = 0;
  for (int shift = 0; shift < 32; shift += 4) {  // Horner, highest power first
    out = out >> 4 ^ kCarry[out & 15] ^ multiple[a >> shift & 15];
  }
  return out;
}

/// kPower[j][v] = x^(8 v 256^j)
using Powers = std::array<std::array<std::uint32_t, 256>, 8>;
constexpr Powers kPower = [] {
  Powers powers{};
  std::uint32_t step = kOne >> 8;  // x^8
  for (auto& row : powers) {
    row[0] = kOne;
    for (std::size_t v = 1; v < 256; ++v) row[v] = product(row[v - 1], step);
    step = product(row[255], step);
  }
  return powers;
}();

/// ISA-L's CRC without the standard's inversions: starts from `state`, and has no final xor.
std::uint32_t advance(std::uint32_t state, std::span<const std::byte> data) {
  constexpr std::size_t kMost = std::size_t{1} << 30;  // ISA-L takes the length as an int
  while (!data.empty()) {
    const std::size_t count = std::min(data.size(), kMost);
    // The library only reads; its parameter lacks a const.
    auto* bytes = const_cast<unsigned char*>(reinterpret_cast<const unsigned char*>(data.data()));
    state = crc32_iscsi(bytes, static_cast<int>(count), state);
    data = data.subspan(count);
  }
  return state;
}

}  // namespace

std::uint32_t crc32c(std::span<const std::byte> data) { return ~advance(0xffffffffu, data); }

std::uint32_t raw_crc32c(std::span<const std::byte> data) { return advance(0, data); }

std::uint32_t shift_crc32c(std::uint32_t raw, std::uint64_t zero_bytes) {
  for (std::size_t j = 0; zero_bytes != 0; ++j, zero_bytes >>= 8) {
    if ((zero_bytes & 0xff) != 0) raw = product(kPower[j][zero_bytes & 0xff], raw);
  }
  return raw;
}

std::uint32_t finish_crc32c(std::uint32_t raw, std::uint64_t length_bytes) {
  return ~(raw ^ shift_crc32c(0xffffffffu, length_bytes));
}

std::uint32_t combine_crc32c(std::uint32_t a, std::uint32_t b, std::uint64_t b_bytes) {
  return shift_crc32c(a, b_bytes) ^ b;
}

std::string mismatch_words(std::uint32_t found, std::uint64_t written) {
  return fmt::format("has checksum {:08x}, {:08x} was written", found, written);
}

}  // namespace cairn::format
