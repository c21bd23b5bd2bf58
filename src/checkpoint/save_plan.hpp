// The plan of a save: everything between the ranks' descriptions and the first byte. Kept for the next save.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "checkpoint/engine_choice.hpp"
#include "comm/communicator.hpp"
#include "io/exchange.hpp"
#include "io/straight_runs.hpp"
#include "plan/extents.hpp"
#include "plan/file_layout.hpp"
#include "planning/catalog_steps.hpp"
#include "planning/describe.hpp"

namespace cairn::checkpoint {

struct SavePlan {
  base::Bytes description;    ///< of this rank, for the comparison with the next save; filled by the caller
  plan::FileLayout layout;    ///< with what this rank needs (layout_steps.hpp), and on rank 0 with the indexes
  io::StraightRuns straight;  ///< of this rank; in no extent
  std::unique_ptr<plan::ExtentMap> extents;
  std::shared_ptr<io::WindowPool> buffers;
  std::optional<io::Exchange> exchange;  ///< refers to layout, extents and buffers
  std::uint64_t tensors = 0;
  std::uint64_t tensor_bytes = 0;  ///< of all tensors
};

struct SavePlanOptions {
  const Options& options;
  const EngineChoice& choice;
  io::WindowStore& store;
};

/// Collective. Catalog, file layout, extents, coverage check and transfers. Throws kState for holes, overlaps and
/// contradictions, kUsage for options that cannot work.
std::unique_ptr<SavePlan> make_save_plan(comm::Communicator& communicator, const DescribedState& state,
                                         std::span<const LocalBox> boxes, const SavePlanOptions& how);

}  // namespace cairn::checkpoint
