// Benchmarks of encoding and decoding. A rate counts the bytes of both moments (8 per pair). Codecs that need
// statistics compute them in a separate pass.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "check.hpp"
#include "quant/codec.hpp"

namespace cairn::micro {
namespace {

const quant::Source kSource = {"w", {1024, 1024}};
constexpr std::size_t kElements = 1024 * 1024;

struct State {
  std::vector<float> m = std::vector<float>(kElements);
  std::vector<float> v = std::vector<float>(kElements);
  [[nodiscard]] quant::ConstMoments view() const { return {m, v}; }
};

State lognormal_state() {
  std::mt19937_64 random(7);
  std::normal_distribution<float> normal;
  State state;
  for (std::size_t i = 0; i < kElements; ++i) {
    state.v[i] = std::exp(-25.0F + normal(random));
    state.m[i] = normal(random) * std::sqrt(state.v[i]);
  }
  return state;
}

void set_bytes(benchmark::State& timing) {
  timing.SetBytesProcessed(timing.iterations() * static_cast<std::int64_t>(kElements * 2 * sizeof(float)));
}

/// Allowed error of m over the largest |m|: half a step of the scale for Paddle; mostly an effect of sqrt(v) for Cairn.
double error_bound(const quant::Traits& traits) {
  const bool is_paddle = traits.name.starts_with("paddle");
  if (traits.bits == 8) return is_paddle ? 1.001 / 254 : 0.02;
  return is_paddle ? 1.001 / 14 : 0.2;
}

void require_near(const State& state, const State& found, double bound) {
  float largest = 0;
  float error = 0;
  for (std::size_t i = 0; i < kElements; ++i) {
    largest = std::max(largest, std::fabs(state.m[i]));
    error = std::max(error, std::fabs(state.m[i] - found.m[i]));
  }
  require(error <= largest * bound && error > 0, "m was not decoded to what it was");
}

void encode_moments(benchmark::State& timing, const char* name) {
  const quant::Codec& codec = quant::find_codec(name);
  const State state = lognormal_state();
  for (auto _ : timing) benchmark::DoNotOptimize(quant::encode_whole(codec, kSource, state.view()));
  set_bytes(timing);
}

void decode_moments(benchmark::State& timing, const char* name) {
  const quant::Codec& codec = quant::find_codec(name);
  const State state = lognormal_state();
  const quant::Encoded encoded = quant::encode_whole(codec, kSource, state.view());
  State found;
  for (auto _ : timing) {
    quant::decode_whole(codec, kSource, encoded, {}, {found.m, found.v});
    benchmark::ClobberMemory();
  }
  require_near(state, found, error_bound(codec.traits()));
  set_bytes(timing);
}

BENCHMARK_CAPTURE(encode_moments, q8, "q8");
BENCHMARK_CAPTURE(encode_moments, q4, "q4");
BENCHMARK_CAPTURE(decode_moments, q8, "q8");
BENCHMARK_CAPTURE(decode_moments, q4, "q4");
BENCHMARK_CAPTURE(encode_moments, paddle_o1, "paddle-o1");
BENCHMARK_CAPTURE(encode_moments, paddle_o2, "paddle-o2");
BENCHMARK_CAPTURE(decode_moments, paddle_o1, "paddle-o1");
BENCHMARK_CAPTURE(decode_moments, paddle_o2, "paddle-o2");

}  // namespace
}  // namespace cairn::micro
