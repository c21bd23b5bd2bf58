// Timing of repeated work, and a row of the results.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "gpu/stream.hpp"

namespace cairn::gpu_bench {

struct Seconds {
  double least = 0;
  double median = 0;
  double most = 0;
};

/// Times the work between two events on the stream, after one run that is not timed.
Seconds time_on_stream(const gpu::Stream& stream, int repeats, const std::function<void()>& work);
/// Times the work by the host's clock, after one run that is not timed. The work must wait until the GPU is done.
Seconds time_on_host(int repeats, const std::function<void()>& work);

/// One result: bytes and time of the measured work, and bytes and time of a reference in the same run.
struct Row {
  std::string name;
  std::string clock;  ///< "events" or "host"
  std::uint64_t bytes = 0;
  Seconds seconds;
  std::string reference;
  std::uint64_t reference_bytes = 0;
  Seconds reference_seconds;

  [[nodiscard]] double rate() const { return static_cast<double>(bytes) / seconds.median; }
  [[nodiscard]] double reference_rate() const {
    return static_cast<double>(reference_bytes) / reference_seconds.median;
  }
};

}  // namespace cairn::gpu_bench
