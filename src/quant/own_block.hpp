// One block of q8 or q4: 128 pairs (m, v) that share a scale word.
//
//   encode_block()    values -> word and one code for each pair
//   decode_block()    word and codes -> values
//   pack(), unpack()  word and codes <-> stored bytes
//
// Both codecs use the same arithmetic; they differ in the number of codes for a pair, and so in the packing. The caller
// fills a short last block with copies of its first pair, which change no scale.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "quant/own_grid.hpp"

namespace cairn::quant::own {

inline constexpr std::size_t kBlockElements = 128;

struct Values {
  alignas(64) std::array<float, kBlockElements> m;
  alignas(64) std::array<float, kBlockElements> v;
};

struct Block {
  std::uint32_t word = 0;
  alignas(64) std::array<std::uint32_t, kBlockElements> codes{};

  friend bool operator==(const Block&, const Block&) = default;
};

struct Format {
  std::string_view name;
  unsigned bits = 0;               ///< bits per value, without scales, rounded down
  std::uint32_t codes = 0;         ///< number of codes for a pair: every code is smaller
  std::size_t block_bytes = 0;     ///< stored bytes of a block
  const Levels* levels = nullptr;  ///< levels for each range
  void (*pack)(const Block&, std::byte*) = nullptr;
  bool (*unpack)(const std::byte*, Block&) = nullptr;  ///< false: bytes that pack() never writes
};

extern const Format kQ8;
extern const Format kQ4;

[[nodiscard]] Grid grid_of(const Format& format, std::uint32_t word);

/// Encodes a block. False if a value is refused (is_refused()); `block` then has no meaning.
[[nodiscard]] bool encode_block(const Format& format, const Values& values, Block& block);

/// Decodes a block. False if one of the block's codes is not in use; `values` then have no meaning.
[[nodiscard]] bool decode_block(const Format& format, const Block& block, Values& values);

/// Whether a pair cannot be coded in any block: m or v is NaN or infinite, v < 0, or |u| is above about 2^40.
[[nodiscard]] bool is_refused(float m, float v);

}  // namespace cairn::quant::own
