// Checks whether all ranks see the same directory under one path: a node or container may have its own disk there, or
// nothing mounted.
#pragma once

#include <chrono>
#include <filesystem>

#include "comm/communicator.hpp"

namespace cairn::root {

/// Collective. True on one rank of each mount namespace of each node (a container has its own); always on rank 0.
bool is_first_of_view(comm::Communicator& communicator);

/// The time for which a node may answer from its cache: clients of network file systems do so for a minute.
inline constexpr std::chrono::seconds kLongestCached{65};

/// Collective. Rank 0 makes a temporary file in the directory, unless all ranks have one view; throws kUsage, naming
/// ranks and hosts, if a view does not see the file within `patience` (at once on a local file system). Returns false
/// if rank 0 cannot write there, so that nothing is known. Fault hook: step "root.see".
bool check_all_nodes_see(comm::Communicator& communicator, const std::filesystem::path& directory,
                         std::chrono::milliseconds patience = kLongestCached);

}  // namespace cairn::root
