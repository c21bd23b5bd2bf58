// One rank of a world plans once more, alone and from the beginning, and what that costs it is measured.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "cli/plan_world.hpp"

namespace cairn::cli {

/// The steps of planning a save that are measured, in their order. "shards" is what the layout costs (ShardMap::held_by
/// and a Source per tensor), which a trainer that describes its shards itself does not have.
inline constexpr std::array<std::string_view, 9> kPlanSteps = {"shards", "describe", "catalog",   "files",   "indexes",
                                                               "claims", "places",   "transfers", "exchange"};

struct StepCost {
  double seconds = 0;            ///< of the processor
  std::uint64_t peak_bytes = 0;  ///< of the heap: what the rank had from before, messages that came, and the step's own
};

struct RankCost {
  int rank = 0;
  std::array<StepCost, kPlanSteps.size()> steps;
  double seconds = 0;            ///< of all steps
  std::uint64_t peak_bytes = 0;  ///< the largest of all steps
  std::uint64_t kept_bytes = 0;  ///< what the plan takes when it is made, until the next save
};

/// Requires: the world keeps the rank's records. Throws Error(kInternal) when the rank's plan differs from the world's.
RankCost replay_rank(const PlanWorld& world, int rank);

}  // namespace cairn::cli
