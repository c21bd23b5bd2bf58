// What the two halves of the demonstration must agree on: the layout of the ranks at work, and the ranks' blobs.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "comm/communicator.hpp"

namespace cairn::cli {

/// Collective. Text of the layout of an argument; empty stands for tp=2,pp=2 on four ranks and fsdp=N on others. Throws
/// Error(kUsage) when its world size is not that of the communicator.
std::string demo_layout(comm::Communicator& communicator, const std::string& argument);

/// What rank r of n saves as its blob.
std::vector<std::byte> demo_blob(int rank, int size);

}  // namespace cairn::cli
