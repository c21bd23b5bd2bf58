// Whether the ranks mean the same directory by the same path: nodes may have a disk of their own there, or have nothing
// mounted, and so may containers of one node.
#pragma once

#include <chrono>
#include <filesystem>

#include "comm/communicator.hpp"

namespace cairn::root {

/// Collective. True on one rank of each node, and of each container of it that has mounts of its own (a mount namespace);
/// on rank 0 always.
bool is_first_of_view(comm::Communicator& communicator);

/// How long a node may go on answering from what it knows: a client of a network file system does so for a minute.
inline constexpr std::chrono::seconds kLongestCached{65};

/// Collective. Throws kUsage, naming ranks and hosts, unless one rank of each node sees in the directory, which rank 0
/// sees, what rank 0 makes there for a moment. Nothing is made where all ranks have one view. False: nothing can be said,
/// because rank 0 may not write there. `patience`: for file systems that nodes may share; without effect on local ones. Fault
/// hook: step "root.see".
bool check_all_nodes_see(comm::Communicator& communicator, const std::filesystem::path& directory,
                         std::chrono::milliseconds patience = kLongestCached);

}  // namespace cairn::root
