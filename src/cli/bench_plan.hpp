// From the options of `cairn bench` to what is to be run: workloads, and who saves and loads in which layout.
#pragma once

#include <vector>

#include "bench/runner.hpp"
#include "bench/workload.hpp"
#include "cli/bench.hpp"

namespace cairn::cli {

/// Collective. One workload, or one for each size of a sweep. Throws Error(kUsage) for options that contradict each other.
std::vector<bench::Workload> bench_workloads(Context& context, const BenchOptions& options);

/// Collective. Who saves and who loads. Throws Error(kUsage) when a layout is for another number of ranks than it is given,
/// or for more than run.
bench::Placement bench_save(Context& context, const BenchOptions& options);
std::vector<bench::Placement> bench_loads(Context& context, const BenchOptions& options, const bench::Placement& save);

}  // namespace cairn::cli
