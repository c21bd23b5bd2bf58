#include "checkpoint/engine_choice.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/log.hpp"
#include "base/units.hpp"
#include "cairn/error.hpp"
#include "comm/mpi.hpp"

namespace cairn::checkpoint {

std::string choose_engine(comm::Communicator& communicator, const std::string& wanted) {
  if (wanted != "auto") return wanted;
  if (comm::native_handle(communicator) == MPI_COMM_NULL) return "posix";
  comm::prefer_romio();
  const auto implementation = comm::mpi_io_implementation();
  if (communicator.max(implementation.loses_write_errors ? 1 : 0) == 0) return "mpiio";
  base::warn_once(
      fmt::format("MPI-IO here is {}, which loses write errors: using engine posix instead; set OMPI_MCA_io=romio321 "
                  "before the program starts to use MPI-IO",
                  implementation.io_component));
  return "posix";
}

MemorySplit split_budget(std::uint64_t memory_budget_bytes, std::uint64_t block_bytes) {
  if (memory_budget_bytes / 4 < block_bytes) {
    throw Error(ErrorKind::kUsage,
                fmt::format("a memory budget of {} is too small for blocks of {}: it must hold 4 blocks",
                            base::format_size(memory_budget_bytes), base::format_size(block_bytes)));
  }
  const std::uint64_t window = memory_budget_bytes / 4 / block_bytes * block_bytes;  // of two
  return {window, std::clamp<std::uint64_t>(memory_budget_bytes / 4, 1ULL << 20, 64ULL << 20)};
}

}  // namespace cairn::checkpoint
