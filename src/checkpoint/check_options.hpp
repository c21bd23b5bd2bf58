// Checks of options, which must be possible, and the same on all ranks. A Checkpointer makes them at its construction,
// not in its first save, hours later.
#pragma once

#include <filesystem>
#include <span>

#include "cairn/options.hpp"
#include "comm/communicator.hpp"
#include "opening/open.hpp"

namespace cairn::checkpoint {

/// Rank-local. Throws Error(kUsage) naming the refused value and the possible ones. Options that depend on the state,
/// the root, the machine or blocks (as the memory budget does) are checked later. Options::waiting, Options::lease, and
/// mode and group of files are also checked when the object is made, but by the code that uses them.
void check_options(const Options& options);

/// Collective. Throws Error(kUsage) on all ranks, naming the first option, `sight` or path (kAllRanks) that differs.
void agree_on_options(comm::Communicator& communicator, const Options& options,
                      std::span<const std::filesystem::path> where, Sight sight = Sight::kAllRanks);

/// Collective. Throws Error(kUsage) on all ranks, naming the first option that differs.
void agree_on_load_options(comm::Communicator& communicator, const LoadOptions& options);

}  // namespace cairn::checkpoint
