// One block of q8 or q4: 128 pairs (m, v) that share a scale word.
//
//   encode_block()   values -> word and one code for each pair      own_encode.cpp
//   decode_block()   and back                                       own_decode.cpp
//   pack(), unpack() word and codes <-> the bytes that are stored   own_pack.cpp
//
// Both codecs compute alike; they differ in how many codes a pair has, and so in the packing. A short last block is filled
// up by its caller with copies of its first pair, which change no scale.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "quant/own_scales.hpp"

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
  unsigned bits = 0;               ///< for one value, scales left out, rounded down
  std::uint32_t codes = 0;         ///< of a pair: every code of every block is below
  std::size_t block_bytes = 0;     ///< stored for one block
  const Levels* levels = nullptr;  ///< by range
  void (*pack)(const Block&, std::byte*) = nullptr;
  bool (*unpack)(const std::byte*, Block&) = nullptr;  ///< false: bytes that pack() never writes
};

extern const Format kQ8;
extern const Format kQ4;

/// What a block's codes mean; a function of its word.
struct Grid {
  float u_scale = 0;        ///< 0 or the largest |u|
  std::int32_t u_half = 0;  ///< u's levels are -u_half .. u_half
  std::int32_t low = 0;     ///< lowest log2(v), 2^-20 octaves
  std::int32_t range = 0;
  std::int32_t v_levels = 0;  ///< of v, with the one for 0
  std::int32_t v_steps = 0;   ///< between the lowest and the highest level of v > 0
  std::int32_t zero = 0;      ///< 1 when v's code 0 stands for v = 0
};

[[nodiscard]] Grid grid_of(const Format& format, std::uint32_t word);

/// False when a value is refused (is_refused); `block` is then without meaning.
[[nodiscard]] bool encode_block(const Format& format, const Values& values, Block& block);

/// False when a code is none of the block's; `values` are then without meaning.
[[nodiscard]] bool decode_block(const Format& format, const Block& block, Values& values);

/// u is m over this where v is 0: 2^-27, which stands for the epsilon of Adam, 1e-8.
inline constexpr float kZeroReference = 0x1p-27f;

/// True for a pair that no block can hold: m or v NaN or infinite, v < 0, or |u| above 2^40 (nearly).
[[nodiscard]] bool is_refused(float m, float v);

}  // namespace cairn::quant::own
