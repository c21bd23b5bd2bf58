// Phases of a save, load or check as a table and as JSON.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "base/json.hpp"
#include "cairn/checkpoint.hpp"

namespace cairn::cli {

/// Bytes of all ranks over seconds of the slowest, in GiB/s; "-" when either is 0.
std::string throughput(std::uint64_t bytes, double seconds);

/// Columns phase, seconds (slowest rank), fastest, bytes, GiB/s; then a row "total" with the seconds and bytes given.
std::string phase_table(std::span<const Phase> phases, double total_seconds, std::uint64_t total_bytes);

/// [{"name", "seconds_max", "seconds_min", "size_bytes"}].
base::Json phases_json(std::span<const Phase> phases);

}  // namespace cairn::cli
