// Listings: the checkpoints of a root, and the tensors of a checkpoint as a load returns them.
#pragma once

#include <filesystem>
#include <vector>

#include "cairn/checkpoint.hpp"
#include "codes/view.hpp"
#include "comm/communicator.hpp"
#include "opening/open.hpp"

namespace cairn::checkpoint {

/// Collective: the entries that list_root() finds on rank 0, sorted by step; the same on all ranks.
std::vector<StepInfo> list_steps(comm::Communicator& communicator, const std::filesystem::path& root);

/// Rank-local: the selected tensors of the view, without the ranks' blobs.
std::vector<TensorInfo> list_tensors(const opening::OpenCheckpoint& opened, const codes::View& view,
                                     const Selection& selection);

}  // namespace cairn::checkpoint
