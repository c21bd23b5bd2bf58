// Measures one codec on the device: statistics, encoding, staging. Every result is compared with the processor's codec.
#pragma once

#include <cstdint>
#include <vector>

#include "quant/codec.hpp"
#include "timing.hpp"

namespace cairn::gpu_bench {

struct Options {
  std::uint64_t state_bytes = 0;   ///< bytes of both moments
  std::uint64_t budget_bytes = 0;  ///< memory of each pipeline
  int repeats = 0;
};

/// Throws Error(kInternal), without figures, if a byte differs from the processor's codec.
std::vector<Row> measure_codec(const quant::Codec& codec, const Options& options);

}  // namespace cairn::gpu_bench
