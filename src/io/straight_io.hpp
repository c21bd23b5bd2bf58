// Straight runs (straight_runs.hpp) to and from files in memory: one copy, made by the rank whose memory it is.
//
// Through a window a byte is copied twice, and one rank makes the kernel's copies of a whole file. Here the kernel copies
// out of the rank's memory, or into it. It lets one writer at a time into a file of tmpfs, and others that wait spin; so
// ranks take turns with a lock of the file (flock), go on with another file while one is taken, and sleep when all are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "comm/communicator.hpp"
#include "io/engine.hpp"
#include "io/straight_runs.hpp"
#include "plan/pieces.hpp"

namespace cairn::io {

/// A piece of a file that was read, or is about to be written, while it is in the cache.
using PieceSeen = std::function<void(std::uint32_t file, std::uint64_t offset, std::span<const std::byte> data)>;

/// Collective. Writes the runs of this rank to files that exist at their size, syncs and closes them. `memory`: this
/// rank's boxes, by Runs::local, on the host. `seen` is called once with each piece. Throws the same Error on all ranks.
void write_straight(comm::Communicator& communicator, std::span<const EngineFile> files, const StraightRuns& runs,
                    std::span<const plan::MemoryBox> memory, const PieceSeen& seen);

/// Collective. Reads the runs of this rank.
void read_straight(comm::Communicator& communicator, std::span<const EngineFile> files, const StraightRuns& runs,
                   std::span<const plan::MemoryBox> memory, const PieceSeen& seen);

}  // namespace cairn::io
