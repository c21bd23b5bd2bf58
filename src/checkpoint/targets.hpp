// The targets of a load: turned into boxes of an open checkpoint, and read. For a Checkpointer's loads and load_from().
#pragma once

#include <span>
#include <vector>

#include "cairn/checkpoint.hpp"
#include "checkpoint/call.hpp"
#include "checkpoint/reader.hpp"
#include "codes/view.hpp"
#include "comm/communicator.hpp"
#include "opening/open.hpp"

namespace cairn::checkpoint {

/// The targets of one rank in a view.
struct FoundTargets {
  std::vector<plan::MemoryBox> boxes;
  std::vector<codes::ViewTensor> casts;  ///< to be added to the view (View::casts) before the load
  std::vector<std::uint32_t> numbers;    ///< view's numbers of the wanted tensors, not those of casts
  std::vector<TensorName> missing;       ///< optional targets that the view does not have
  std::uint64_t targets = 0;             ///< number of selected targets
  std::uint64_t bytes = 0;               ///< bytes of all boxes
};

/// Rank-local: the boxes of the selected targets, with numbers in the view. Codes and scales are found by their stored
/// names; if a moment has the same name, also by dtype and shape. Throws kNotFound for a missing tensor (unless
/// Target::optional), kState for another shape or a dtype that is not cast, and as check_shards() and check_distinct().
FoundTargets find_targets(const opening::OpenCheckpoint& opened, const codes::View& view,
                          std::span<const Target> targets, const LoadOptions& options = {});

/// Collective: the view in which targets are looked up. Throws Error(kUsage) if the load options differ between ranks.
codes::View view_to_load(comm::Communicator& communicator, const opening::OpenCheckpoint& opened,
                         const Options& options, const LoadOptions& load_options);

struct LoadRequest {
  std::span<const Target> targets;  ///< targets of this rank
  const LoadOptions& options;
};

/// Collective: reads targets of an open checkpoint. `reader` reads `view`, to which this function adds casts.
/// `whole`: a clock that started with the call.
Report load_targets(comm::Communicator& communicator, const opening::OpenCheckpoint& opened, const LoadRequest& request,
                    codes::View& view, TensorReader& reader, const PhaseClock& whole);

}  // namespace cairn::checkpoint
