// Work that MPI_Finalize does first, while all of MPI is still usable.
//
// MPI_Finalize first deletes the attributes of MPI_COMM_SELF (MPI 3.1, 8.7.1), and so calls the work. There each rank
// waits for its own transfers, so that transfers in Cairn's threads can finish on all ranks. MPICH 4.0 takes no locks
// at that point: one thread that uses MPI is safe, but two at the same time may end the process.
#pragma once

#include <functional>

namespace cairn::comm {

class AtFinalize {
 public:
  /// Rank-local; MPI must be up. The thread that calls MPI_Finalize calls `work` once, unless the object has been
  /// destroyed by then. `work` must not throw. Throws Error(kIo) if MPI reports an error.
  explicit AtFinalize(std::function<void()> work);
  ~AtFinalize();
  AtFinalize(const AtFinalize&) = delete;
  AtFinalize& operator=(const AtFinalize&) = delete;

 private:
  std::function<void()> work_;
  friend struct FinalizeList;
};

}  // namespace cairn::comm
