// The checkpointing workloads of MLPerf Storage v2.0 (mlcommons/storage: checkpointing/README, configs/dlio/workload):
// Llama 3 of four sizes, 14 bytes a parameter, a number of processes for each.
//
// Scaled to the ranks at hand: as many bytes a rank as the closed division has, unless a size is given. MLPerf writes ten
// checkpoints and then reads ten; Cairn's benchmark reads each after it was written.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench/workload.hpp"

namespace cairn::bench {

/// "8b", "70b", "405b", "1t".
std::vector<std::string> mlperf_names();

/// For `ranks` ranks, of `bytes` altogether (default: the closed division's bytes a rank). Throws Error(kUsage) for a name
/// that is none.
Workload mlperf_workload(const std::string& name, int ranks, std::optional<std::uint64_t> bytes,
                         const std::vector<std::string>& sections);

/// The workload's parallelism on `ranks` ranks: its tensor parallelism (less where the ranks do not divide), and the rest
/// as FSDP (8B, 70B: ZeRO-3) or as pipeline stages (405B, 1T).
std::string mlperf_layout(const std::string& name, int ranks);

}  // namespace cairn::bench
