// The plan of a load: which blocks somebody wants, who reads them, and who gets what. The counterpart of save.hpp.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "checkpoint/engine_choice.hpp"
#include "checkpoint/file_reader.hpp"
#include "codes/decode_pieces.hpp"
#include "comm/communicator.hpp"
#include "directory/open.hpp"
#include "io/exchange.hpp"
#include "io/window_pool.hpp"
#include "plan/extents.hpp"
#include "plan/pieces.hpp"

namespace cairn::checkpoint {

struct ReadPlan {
  std::span<const plan::MemoryBox> memory;   ///< what this rank wants
  std::vector<plan::Piece> pieces;           ///< the same
  std::unique_ptr<plan::ExtentMap> extents;  ///< null: no rank wants a byte, and nothing else is here
  std::optional<BypassRead> bypass;          ///< in no extent
  MemorySplit budget;
  std::vector<plan::Window> windows;  ///< of this rank's extents
  std::uint64_t rounds = 0;           ///< of the rank with the most windows
  std::shared_ptr<io::WindowPool> buffers;
  io::DeviceCopies* device = nullptr;  ///< as in ReadPlanOptions
};

struct ReadPlanOptions {
  std::uint64_t memory_budget_bytes;
  const EngineChoice& choice;
  io::WindowStore& store;
  io::DeviceCopies& device;  ///< must outlive the plan
};

/// Collective. `wanted` must outlive the plan. Throws kInternal for a box that does not fit its tensor or its memory,
/// kUsage for a budget that is too small.
ReadPlan make_read_plan(comm::Communicator& communicator, const OpenCheckpoint& checkpoint,
                        std::span<const plan::MemoryBox> wanted, const ReadPlanOptions& how);

/// Collective: the exchange that scatters the windows. `plan` and `checkpoint` must outlive it.
io::Exchange make_exchange(comm::Communicator& communicator, const OpenCheckpoint& checkpoint, const ReadPlan& plan);

}  // namespace cairn::checkpoint
