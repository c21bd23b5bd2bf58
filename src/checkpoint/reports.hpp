// What calls say of themselves when they are done.
#pragma once

#include <filesystem>
#include <span>

#include "cairn/checkpoint.hpp"
#include "checkpoint/engine_choice.hpp"
#include "codes/decode_pieces.hpp"
#include "directory/open.hpp"
#include "format/stored_checkpoint.hpp"

namespace cairn::checkpoint {

/// Rank-local. Of tensors that were written; the times are missing.
Report report_of(const format::StoredCheckpoint& written, const EngineChoice& engine);

/// Collective. Of what the targets of all ranks got; the times are missing.
Report report_of_load(comm::Communicator& communicator, const OpenCheckpoint& opened, const EngineChoice& engine,
                      std::span<const plan::MemoryBox> wanted, std::size_t targets);

}  // namespace cairn::checkpoint
