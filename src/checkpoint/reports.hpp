// What calls say of themselves when they are done.
#pragma once

#include <filesystem>
#include <span>

#include "cairn/checkpoint.hpp"
#include "checkpoint/engine_choice.hpp"
#include "checkpoint/load.hpp"
#include "checkpoint/phases.hpp"
#include "directory/open.hpp"
#include "format/stored_checkpoint.hpp"

namespace cairn::checkpoint {

/// Rank-local. Of tensors that were written; the times are missing.
Report report_of(const format::StoredCheckpoint& written, const EngineChoice& engine);

/// Collective. Of what the targets of all ranks got; the times are missing.
Report report_of_load(comm::Communicator& communicator, const OpenCheckpoint& opened, const EngineChoice& engine,
                      std::span<const WantedBox> wanted, std::size_t targets);

/// Collective. `whole` may have run longer than the phases.
void add_times(comm::Communicator& communicator, const PhaseClock& phases, const PhaseClock& whole, Report& report);

}  // namespace cairn::checkpoint
