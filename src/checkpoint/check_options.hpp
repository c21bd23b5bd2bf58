// Refuses impossible options when an object is made, not in its first save, hours later.
#pragma once

#include "cairn/options.hpp"

namespace cairn::checkpoint {

/// Rank-local. Throws Error(kUsage) naming the option and its possible values. Options that depend on the state, the
/// root, the machine or the blocks to be loaded are checked later. Options::waiting, Options::lease, and mode and group
/// of files are also checked when the object is made, but by the code that uses them.
void check_options(const Options& options);

}  // namespace cairn::checkpoint
