// Work that MPI_Finalize calls first, while all of MPI still works.
//
// Uses the deletion of an attribute of MPI_COMM_SELF (MPI 3.1, 8.7.1). By then every rank has called MPI_Finalize, so
// transfers in Cairn's threads can finish. MPICH 4.0 takes no locks at that point: one such thread is safe, but two in
// MPI at the same time may end the process.
#pragma once

#include <functional>

namespace cairn::comm {

class AtFinalize {
 public:
  /// Rank-local, while MPI is up. The thread that calls MPI_Finalize calls `work` once, unless the object has been
  /// destroyed by then. `work` must not throw. Throws Error(kIo) if MPI refuses.
  explicit AtFinalize(std::function<void()> work);
  ~AtFinalize();
  AtFinalize(const AtFinalize&) = delete;
  AtFinalize& operator=(const AtFinalize&) = delete;

 private:
  std::function<void()> work_;
  friend struct FinalizeList;
};

}  // namespace cairn::comm
