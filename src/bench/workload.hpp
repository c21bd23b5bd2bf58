// The state that a benchmark saves and loads: a synthetic training state of a real model, a model scaled to a size, or
// a model from MLPerf Storage's checkpointing workloads.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bench/demo_state.hpp"

namespace cairn::bench {

struct Workload {
  std::string name;  ///< "llama-3.1-8b", "mlperf 405b", "size 1.00 GiB"
  std::string note;  ///< description of the scaling; can be empty
  DemoState state;
};

/// The most layers of a model: the names alone would take gigabytes.
inline constexpr std::uint64_t kMostLayers = 100'000;

/// The dimensions of a Llama model, from which smaller models are made.
struct ModelShape {
  std::uint64_t layers;
  std::uint64_t hidden;
  std::uint64_t heads;
  std::uint64_t kv_heads;
  std::uint64_t ffn;
  std::uint64_t vocab;
};

inline constexpr ModelShape kLlama8B = {32, 4096, 32, 8, 14336, 128256};
inline constexpr ModelShape kLlama70B = {80, 8192, 128, 8, 28672, 128256};
inline constexpr ModelShape kLlama405B = {126, 16384, 128, 8, 53248, 128256};

/// Sections of a comma-separated list; "all" is all three. Throws Error(kUsage) for an unknown name.
std::vector<std::string> parse_sections(std::string_view text);

/// Bytes of a parameter in the sections: 16-bit weights, F32 master weights, two F32 moments; 14 in all three.
double bytes_of_parameter(const std::vector<std::string>& sections);

/// Removes all tensors that are not in the sections.
void keep_sections(DemoState& state, const std::vector<std::string>& sections);

/// A model whose sections have about `bytes`: with fewer layers, down to four, and a smaller vocabulary; if that is not
/// enough, with smaller widths. Never larger than the shape. The note describes the scaling.
Workload scaled_workload(std::string name, const ModelShape& shape, std::uint64_t bytes,
                         const std::vector<std::string>& sections);

/// scaled_workload() for the smallest Llama 3 shape that is large enough. Throws Error(kUsage) if the largest shape is
/// too small.
Workload sized_workload(std::uint64_t bytes, const std::vector<std::string>& sections);

/// A model by name, with the number of layers (at least one) that comes closest to `bytes`.
Workload layered_workload(const std::string& model, std::uint64_t bytes, const std::vector<std::string>& sections);

// The checkpointing workloads of MLPerf Storage v2.0 (mlcommons/storage: checkpointing/README, configs/dlio/workload):
// Llama 3 in four sizes, with 14 bytes per parameter, and a number of processes for each size.
//
// Workloads are scaled to the available ranks, with the closed division's bytes per rank unless a size is given. MLPerf
// writes ten checkpoints and then reads ten; Cairn's benchmark reads each one after writing it.

/// "8b", "70b", "405b", "1t".
std::vector<std::string> mlperf_names();

/// The workload for `ranks` ranks, with `bytes` in total (default: the closed division's bytes per rank).
/// Throws Error(kUsage) for an unknown name.
Workload mlperf_workload(const std::string& name, int ranks, std::optional<std::uint64_t> bytes,
                         const std::vector<std::string>& sections);

/// The workload's parallelism on `ranks` ranks: its tensor parallelism (halved until it divides the ranks), and the
/// rest as FSDP (8B, 70B: ZeRO-3) or as pipeline stages (405B, 1T).
std::string mlperf_layout(const std::string& name, int ranks);

}  // namespace cairn::bench
