// The made-up data set, and the order of its samples.
//
// Samples and order are functions of the seed and a position, without state. A run that resumes at a step gets the same
// samples on any number of ranks, and nothing about them has to be saved.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>

namespace trainer {

constexpr std::size_t kInputs = 8;
constexpr std::uint64_t kSamples = 4096;  // a power of two

struct Sample {
  std::array<float, kInputs> input;
  float target;
};

/// 64 pseudo-random bits (splitmix64).
inline std::uint64_t hash(std::uint64_t a, std::uint64_t b = 0) {
  std::uint64_t x = a * 0x9E3779B97F4A7C15 + b + 0x632BE59BD9B4E019;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
  return x ^ (x >> 31);
}

/// A number in [-1, 1), in steps of 2^-23: the same float on every machine.
inline float uniform(std::uint64_t bits) { return static_cast<float>(bits >> 40) / 8388608.0F - 1.0F; }

/// Sample `number` of the data set. Samples from kSamples on are only for validation.
inline Sample sample(std::uint64_t seed, std::uint64_t number) {
  Sample made{};
  for (std::size_t i = 0; i < kInputs; ++i) made.input[i] = uniform(hash(seed, number * kInputs + i));
  made.target = std::sin(3 * made.input[0]) * made.input[1] + made.input[2] * made.input[3] - 0.5F * made.input[4];
  return made;
}

/// The data order: the sample at a position, counted from the start of the training. Every epoch visits each sample
/// once, in a different order: i -> a * i + b is a permutation, because a is odd and kSamples is a power of two.
inline std::uint64_t sample_at(std::uint64_t seed, std::uint64_t position) {
  const std::uint64_t epoch = position / kSamples;
  const std::uint64_t a = hash(seed + 1, 2 * epoch) | 1;
  const std::uint64_t b = hash(seed + 1, 2 * epoch + 1);
  return (a * (position % kSamples) + b) % kSamples;
}

}  // namespace trainer
