// What the one saver of a root does with what others left there.
#pragma once

#include <filesystem>

#include "directory/lease.hpp"

namespace cairn::checkpoint {

/// Rank-local, by the holder of the lease after it took it, before it saves. Renames away everything unfinished that is not of
/// its own nonce, so that a saver that was taken for dead and goes on finds nothing that it could rename, then deletes
/// it:
///   checkpoint-<step>.<nonce>.partial, the pointer's temporary   away
///   checkpoint-<step>.<nonce>.replaced                           its old checkpoint gets its name back where nothing has
///                                                                it, else it is deleted once a newer one has it whole
///   checkpoint-<step>.partial of Cairn 0.1                       away: its saver had no lease, and so is not alive
///   checkpoint-<step>.replaced of Cairn 0.1                      gets its name back where nothing has it, else it stays
/// Nothing of another name is touched. What cannot be deleted is left, with a warning. Throws kState when another saver has
/// taken the lease, kIo when something cannot be renamed away: then the root is not safe, and no save may go on.
void clear_root(Lease& lease);

/// As clear_root, for what this saver's own failed saves left.
void clear_own(Lease& lease);

}  // namespace cairn::checkpoint
