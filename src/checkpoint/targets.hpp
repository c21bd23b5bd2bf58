// Checks that the arguments of public calls are the same on all ranks, turns targets into boxes, and makes reports.
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

// The communicator of a public call, and the arguments that must be the same on all its ranks.

/// Collective over `given`: a duplicate that waits as `options` say; sets this rank for fault hooks and log lines.
std::unique_ptr<comm::Communicator> watched_communicator(MPI_Comm given, const Options& options);

/// Collective. Throws Error(kUsage) on all ranks, naming the first option that differs, or the path.
void agree_on_options(comm::Communicator& communicator, const Options& options,
                      std::span<const std::filesystem::path> where, Sight sight = Sight::kAllRanks);

/// Collective. Throws Error(kUsage) on all ranks, naming the first option that differs.
void agree_on_load_options(comm::Communicator& communicator, const LoadOptions& options);

// Turns a caller's targets into boxes of an open checkpoint.

/// The targets of one rank in a view.
struct FoundTargets {
  std::vector<plan::MemoryBox> boxes;
  std::vector<codes::ViewTensor> casts;  ///< to be added to the view (View::casts) before the load
  std::vector<std::uint32_t> numbers;    ///< numbers of the wanted tensors, before casts
  std::vector<TensorName> missing;       ///< optional targets that the view does not have
  std::uint64_t targets = 0;             ///< selected ones
  std::uint64_t bytes = 0;               ///< bytes of all boxes
};

/// Rank-local: the boxes of the selected targets, numbered by the view. Codes and scales are found by their stored
/// names; if a moment has the same name, by their dtype. Throws kNotFound for a missing tensor, kState for a different
/// type or shape, and as check_shards().
FoundTargets find_targets(const opening::OpenCheckpoint& opened, const codes::View& view,
                          std::span<const Target> targets, const LoadOptions& options = {});

// The common part of Checkpointer::load and load_from.

/// The options of a load.
ReadOptions read_options(const Options& options);

/// Collective: the view in which targets are looked up. Throws Error(kUsage) if the load options differ between ranks.
codes::View view_to_load(comm::Communicator& communicator, const opening::OpenCheckpoint& opened,
                         const Options& options, const LoadOptions& load_options);

struct LoadRequest {
  std::span<const Target> targets;  ///< targets of this rank
  const LoadOptions& options;
};

/// Collective: reads targets of an open checkpoint, with a reader of `view`, to which it adds casts.
/// `whole` started with the call.
Report load_targets(comm::Communicator& communicator, const opening::OpenCheckpoint& opened, const LoadRequest& request,
                    codes::View& view, TensorReader& reader, const PhaseClock& whole);

/// Rank-local: a report of written tensors, without times.
Report report_of(const format::StoredCheckpoint& written, const EngineChoice& engine);

}  // namespace cairn::checkpoint
