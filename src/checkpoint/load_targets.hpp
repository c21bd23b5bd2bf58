// What Checkpointer::load and load_from have in common.
#pragma once

#include <span>

#include "cairn/checkpoint.hpp"
#include "checkpoint/call.hpp"
#include "checkpoint/reader.hpp"
#include "codes/view.hpp"
#include "directory/open.hpp"

namespace cairn::checkpoint {

/// What a load takes of the options.
ReadOptions read_options(const Options& options);

/// Collective: the open checkpoint as its targets are named.
View view_to_load(comm::Communicator& communicator, const OpenCheckpoint& opened, const Options& options);

/// Collective: reads the targets of an open checkpoint, by a reader of `view`. `whole` began with the call.
Report load_targets(comm::Communicator& communicator, const OpenCheckpoint& opened, std::span<const Target> targets,
                    const View& view, TensorReader& reader, const PhaseClock& whole);

}  // namespace cairn::checkpoint
