// `cairn plan`: the cost, for each rank of a layout, of saving or loading a model's training state, without any ranks.
//
// The planner of a real save or load runs for every rank in this process (simulate/plan_save.hpp, plan_load.hpp); time
// and memory are measured on a sample of the ranks. No checkpoint is read or written.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "cairn/options.hpp"
#include "cli/output.hpp"

namespace cairn::cli {

struct PlanOptions {
  std::string model;                       ///< a name, or @config.json
  std::string layout;                      ///< layout of the save: a short form, or @file.json; empty: fsdp=N
  std::optional<std::string> load_layout;  ///< plan, instead of the save, a load of the saved state
  std::string sections = "all";            ///< or a list with commas
  std::uint64_t ranks_sampled = 32;        ///< ranks whose planning is measured; more than there are: all
  std::optional<std::uint64_t> layers;
  std::optional<std::uint64_t> nodes;            ///< of the ranks that plan
  std::optional<std::uint64_t> ranks_per_node;   ///< consecutive ranks
  std::uint64_t stripe_bytes = 0;                ///< stripe size of the file system; 0: not given
  std::uint64_t bandwidth_bytes_per_second = 0;  ///< bandwidth of all ranks together; 0: not given
  bool json = false;
  Options checkpointer;
};

/// Collective, though only rank 0 works. Throws the errors of a save, and Error(kUsage) for wrong options.
int run_plan(Context& context, const PlanOptions& options);

}  // namespace cairn::cli
