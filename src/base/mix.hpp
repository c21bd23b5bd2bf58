// Hashes of numbers and strings, the same on all ranks and machines.
//
// SplitMix64: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014.
#pragma once

#include <cstdint>
#include <string_view>

namespace cairn::base {

/// Increment of SplitMix64: 2^64 divided by the golden ratio.
inline constexpr std::uint64_t kGoldenGamma = 0x9e3779b97f4a7c15ULL;

/// Finaliser of SplitMix64: a permutation in which every output bit depends on all input bits; mix64(0) is 0.
constexpr std::uint64_t mix64(std::uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  return z ^ (z >> 31);
}

/// SplitMix64's first number for this seed; neighbouring seeds give unrelated numbers.
constexpr std::uint64_t split_mix64(std::uint64_t seed) { return mix64(seed + kGoldenGamma); }

/// Hash of a short string.
constexpr std::uint64_t hash_text(std::string_view text) {
  std::uint64_t hash = text.size();
  for (const char c : text) hash = mix64(hash ^ static_cast<unsigned char>(c));
  return hash;
}

}  // namespace cairn::base
