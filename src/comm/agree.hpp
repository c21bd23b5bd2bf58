// The rule that no rank leaves a collective alone.
//
// Rank-local work inside a collective step goes through agree(): what it throws on some ranks is collected, and the same
// Error is thrown on all.
#pragma once

#include <functional>
#include <string>

#include "comm/communicator.hpp"

namespace cairn::comm {

/// Collective. Runs `work` on this rank; when it threw on any rank, throws on all ranks one Error whose kind and text are
/// those of the lowest failing rank, with " (rank 3)" or " (ranks 3, 5 and 2 more)" appended when the group has more than
/// one rank, and `step` named in front when `work` threw something else than Error. Requires: `work` does not
/// communicate on `communicator`.
void agree(Communicator& communicator, const std::string& step, const std::function<void()>& work);

/// Collective. As agree(), where only `root` works; its result is shared by the caller.
void agree_on_root(Communicator& communicator, const std::string& step, int root, const std::function<void()>& work);

}  // namespace cairn::comm
