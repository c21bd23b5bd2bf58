// Which engine a call uses, decided alike on all ranks.
#pragma once

#include <filesystem>
#include <string>

#include "comm/communicator.hpp"

namespace cairn::checkpoint {

/// Collective. "auto" is "mpiio" when MPI-IO here reports its errors, else "posix", with a warning that says why. Another
/// name is taken as it is; throws Error(kUsage) for one that does not exist.
std::string choose_engine(comm::Communicator& communicator, const std::string& wanted);

/// How a budget of extra memory is spent: windows of whole blocks, and buffers of the exchange.
struct MemorySplit {
  std::uint64_t window_bytes = 0;
  std::uint64_t exchange_bytes = 0;
};
/// Throws Error(kUsage) when the budget cannot hold one block and a buffer (4 x block_bytes).
MemorySplit split_budget(std::uint64_t memory_budget_bytes, std::uint64_t block_bytes);

}  // namespace cairn::checkpoint
