// The communicator of a public call, and the comparison of what all its ranks must be given alike.
#pragma once

#include <mpi.h>

#include <filesystem>
#include <memory>

#include "cairn/checkpoint.hpp"
#include "comm/communicator.hpp"

namespace cairn::checkpoint {

/// Collective over `given`: a duplicate that waits as `options` say; names this rank for faults and log lines.
std::unique_ptr<comm::Communicator> watched_communicator(MPI_Comm given, const Options& options);

/// Collective. Throws Error(kUsage) on all ranks, naming the first option that differs, or the path.
void agree_on_options(comm::Communicator& communicator, const Options& options, const std::filesystem::path& path);

}  // namespace cairn::checkpoint
