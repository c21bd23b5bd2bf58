// What public calls are given, alike on all ranks and turned into boxes, and what they report.
#pragma once

#include <mpi.h>

#include <filesystem>
#include <memory>
#include <span>
#include <vector>

#include "cairn/checkpoint.hpp"
#include "checkpoint/call.hpp"
#include "checkpoint/engine_choice.hpp"
#include "checkpoint/reader.hpp"
#include "codes/decode_pieces.hpp"
#include "codes/view.hpp"
#include "comm/communicator.hpp"
#include "format/stored_checkpoint.hpp"
#include "opening/open.hpp"

namespace cairn::checkpoint {

// The communicator of a public call, and the comparison of what all its ranks must be given alike.

/// Collective over `given`: a duplicate that waits as `options` say; names this rank for faults and log lines.
std::unique_ptr<comm::Communicator> watched_communicator(MPI_Comm given, const Options& options);

/// Collective. Throws Error(kUsage) on all ranks, naming the first option that differs, or the path.
void agree_on_options(comm::Communicator& communicator, const Options& options,
                      std::span<const std::filesystem::path> where, Sight sight = Sight::kAllRanks);

// From a caller's targets to boxes of an open checkpoint.

/// What one rank wants of a view.
struct FoundTargets {
  std::vector<plan::MemoryBox> boxes;
  std::vector<codes::ViewTensor> casts;  ///< belong in the view before they are loaded (View::casts)
  std::vector<std::uint32_t> numbers;    ///< of what is wanted, without casts
  std::vector<TensorName> missing;       ///< optional targets that the view does not have
  std::uint64_t targets = 0;             ///< that are selected
  std::uint64_t bytes = 0;               ///< of all boxes
};

/// Rank-local: the selected targets' boxes as wanted boxes of the view. Codes and scales are had by their stored names;
/// where a moment has the same name, by their dtype. Throws kNotFound or kState where the view has something else, and
/// as check_shards().
FoundTargets find_targets(const opening::OpenCheckpoint& opened, const codes::View& view,
                          std::span<const Target> targets, const LoadOptions& options = {});

// What Checkpointer::load and load_from have in common.

/// What a load takes of the options.
ReadOptions read_options(const Options& options);

/// Collective: the open checkpoint as its targets are named. Throws Error(kUsage) when the load options differ.
codes::View view_to_load(comm::Communicator& communicator, const opening::OpenCheckpoint& opened,
                         const Options& options, const LoadOptions& load_options);

struct LoadRequest {
  std::span<const Target> targets;  ///< of this rank
  const LoadOptions& options;
};

/// Collective: reads targets of an open checkpoint, by a reader of `view`, to which it adds casts. `whole` began with
/// the call.
Report load_targets(comm::Communicator& communicator, const opening::OpenCheckpoint& opened, const LoadRequest& request,
                    codes::View& view, TensorReader& reader, const PhaseClock& whole);

// What calls say of themselves when they are done.

/// Rank-local. Of tensors that were written; the times are missing.
Report report_of(const format::StoredCheckpoint& written, const EngineChoice& engine);

}  // namespace cairn::checkpoint
