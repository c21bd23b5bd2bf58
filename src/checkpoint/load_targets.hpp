// What Checkpointer::load and load_from have in common.
#pragma once

#include <span>

#include "cairn/checkpoint.hpp"
#include "checkpoint/load.hpp"
#include "checkpoint/phases.hpp"
#include "directory/open.hpp"
#include "io/window_pool.hpp"

namespace cairn::checkpoint {

/// What a load takes of the options.
ReadOptions read_options(const Options& options);

/// Collective: reads the targets of an open checkpoint. `windows`: as of make_view_reader; `whole` began with the call.
Report load_targets(comm::Communicator& communicator, const OpenCheckpoint& opened, std::span<const Target> targets,
                    const Options& options, io::WindowStore* windows, const PhaseClock& whole);

}  // namespace cairn::checkpoint
