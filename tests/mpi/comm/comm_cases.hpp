// Requirements on every communicator, for any number of ranks: tests/mpi/comm checks them on MPI, and tests/unit/comm
// on simulated ranks. Failures are GoogleTest expectations, so that all ranks continue with the next collective.
#pragma once

#include <vector>

#include "comm/communicator.hpp"

namespace cairn::test {

struct CommCase {
  const char* name;
  void (*run)(comm::Communicator&);
};

std::vector<CommCase> collective_cases();
std::vector<CommCase> message_cases();
std::vector<CommCase> agree_cases();
std::vector<CommCase> shared_memory_cases();

/// The cases of the four functions above.
std::vector<CommCase> comm_cases();

/// `size` bytes that depend on `from` and `to`.
base::Bytes pattern(int from, int to, std::size_t size);

}  // namespace cairn::test
