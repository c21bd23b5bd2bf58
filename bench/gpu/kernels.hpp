// One codec on the device: encoded, decoded, staged, every result compared with the processor's codec, and timed.
#pragma once

#include <cstdint>
#include <vector>

#include "quant/codec.hpp"
#include "timing.hpp"

namespace cairn::gpu_bench {

struct Options {
  std::uint64_t state_bytes = 0;   ///< of both moments
  std::uint64_t budget_bytes = 0;  ///< of the pipelines
  int repeats = 0;
};

/// Throws Error(kInternal) when a byte is not the processor's; then there are no figures.
std::vector<Row> measure_codec(const quant::Codec& codec, const Options& options);

}  // namespace cairn::gpu_bench
