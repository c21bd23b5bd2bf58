// Options that no save can go by are refused when an object is made, and not by its first save, hours later.
#pragma once

#include "cairn/options.hpp"

namespace cairn::checkpoint {

/// Rank-local. Throws Error(kUsage) naming the option and what it may be. What depends on the state, the root or the
/// machine is not known here, nor how small a memory budget does for the blocks of what is loaded. Options::waiting,
/// Options::lease, and mode and group of the files are looked at where they are used, which is when the object is made, too.
void check_options(const Options& options);

}  // namespace cairn::checkpoint
