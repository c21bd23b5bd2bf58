// Pruning: removes the checkpoints of a root that no rule keeps (retention.hpp), as the root's one saver.
//
// For each checkpoint that goes, void and damaged ones first:
//
//   1  prune.begin    make checkpoint-<step>.<nonce>.replaced/; look whether the lease is still held
//   2  prune.aside    rename checkpoint-<step> into it, where readers find it; look for another saver, a pin, a load,
//                     and whether a person has named the step in the latest file
//   3  prune.remove   rename the directory of step 1 to .cairn/removed.<nonce>: the checkpoint is gone
//
// and then, for all of them together,
//
//   4  prune.delete   fsync of the root and of .cairn; delete what was renamed, on several threads
//
// The names are those of the commit (commit.hpp), so that every reader, and every saver that takes the root over, knows
// them already: remains of steps 1 and 2 are a checkpoint that gets its name back, those of step 3 are deleted. A pin
// or a mark of a load that was made before step 2 is seen in step 2, and then the checkpoint gets its name back at
// once; one that is made later finds the name gone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <vector>

#include "cairn/retention.hpp"
#include "root/lease.hpp"
#include "root/load_mark.hpp"
#include "root/retention.hpp"
#include "root/root.hpp"

namespace cairn::root {

struct PrunePlan {
  std::vector<RootEntry> entries;  ///< in the order of decide()
  std::vector<Verdict> verdicts;   ///< one for each entry
  std::vector<std::size_t> order;  ///< entries that go, in the order of removal
  /// A checkpoint stays only for a load that has not been seen alive: its mark may run out soon.
  bool waits_for_load = false;
};

/// Rank-local; writes nothing, except that marks of loads that have ended are removed. Throws if the root cannot be
/// listed. `now_s`: Unix time.
PrunePlan plan_prune(const std::filesystem::path& root, const Retention& retention, LoadWatch& loads,
                     std::int64_t now_s);

/// The plan as a result, in order of step; nothing has been freed.
Pruning fates_of(const PrunePlan& plan);

/// Rank-local, by the holder of the lease, whose root was cleared. A checkpoint that cannot be removed stays, and is
/// among the warnings. Throws kState if another saver has taken the root over, and errors about the root as a whole.
Pruning prune(Lease& lease, const PrunePlan& plan, LoadWatch& loads);

}  // namespace cairn::root
