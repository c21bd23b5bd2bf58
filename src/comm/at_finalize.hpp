// Work for MPI_Finalize, which calls it first, while all of MPI still works.
//
// Uses the deletion of an attribute of MPI_COMM_SELF (MPI 3.1, 8.7.1). Every rank is on its way into MPI_Finalize then,
// so that transfers between the ranks in threads of ours can finish. MPICH 4.0 takes no locks at that point: one such
// thread is safe; of two that are in MPI at the same time one may end the process.
#pragma once

#include <functional>

namespace cairn::comm {

class AtFinalize {
 public:
  /// Rank-local, while MPI is up. `work` is called once, by the thread that calls MPI_Finalize, unless the object has
  /// been destroyed by then; it must not throw. Throws Error(kIo) when MPI refuses.
  explicit AtFinalize(std::function<void()> work);
  ~AtFinalize();
  AtFinalize(const AtFinalize&) = delete;
  AtFinalize& operator=(const AtFinalize&) = delete;

 private:
  std::function<void()> work_;
  friend struct FinalizeList;
};

}  // namespace cairn::comm
