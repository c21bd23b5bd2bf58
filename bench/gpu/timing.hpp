// Times of repeated work, and the row of a result.
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
/// Times the work by the host's clock, after one run that is not timed. The work must wait for its end.
Seconds time_on_host(int repeats, const std::function<void()>& work);

/// `bytes` over a time, and the reference's bytes over its time in the same run.
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
