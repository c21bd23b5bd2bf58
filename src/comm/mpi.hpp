// Communicators on MPI, the lifetime of MPI in the process, and the choice of the MPI-IO implementation.
#pragma once

#include <mpi.h>

#include <memory>
#include <string>

#include "cairn/waiting.hpp"
#include "comm/communicator.hpp"

namespace cairn::comm {

/// Collective over `parent`: a duplicate of it with MPI_ERRORS_RETURN. The destructor, also collective, frees the
/// duplicate if MPI is still up. Calls on the duplicate wait for other ranks without limit.
std::unique_ptr<Communicator> duplicate_mpi(MPI_Comm parent);

/// As above, but `waiting` limits the waits of this call and of calls on the communicator. CAIRN_WATCHDOG_S, if set,
/// replaces that limit. Throws Error(kState) if some ranks do not make this call, and Error(kUsage) on all ranks for an
/// invalid limit.
std::unique_ptr<Communicator> duplicate_mpi(MPI_Comm parent, Waiting waiting);

/// The MPI handle behind a communicator made by duplicate_mpi (or derived from one); MPI_COMM_NULL if simulated.
MPI_Comm native_handle(Communicator& communicator);

/// MPI's text for a return code.
std::string mpi_error_text(int code);

/// MPI_Init_thread (for MPI_THREAD_MULTIPLE) and MPI_Finalize for our own programs. First leaves a parent rank's
/// job (launcher.hpp), and sets OMPI_MCA_io and OMPI_MCA_sharedfp, if unset, to make MPI-IO safe. While an exception is
/// unwinding, calls MPI_Abort instead of MPI_Finalize. If MPI is already up, sets only the rank for log lines.
class MpiSession {
 public:
  MpiSession(int& argc, char**& argv);
  ~MpiSession();
  MpiSession(const MpiSession&) = delete;
  MpiSession& operator=(const MpiSession&) = delete;

 private:
  bool owned_ = false;
};

/// Any thread. Ends the whole job by MPI_Abort while MPI is up, otherwise only this process, without clean-up.
[[noreturn]] void abort_job(int exit_code);

/// First line of MPI_Get_library_version; may be called before MPI_Init.
std::string mpi_library();

/// Makes Open MPI's MPI-IO use ROMIO, unless the user chose a component. Before MPI_Init this sets an environment
/// variable (setenv: no other threads yet), later MPI's control variable (0.2 s once: MPI_T loads all components).
/// Works until the process opens its first MPI file; mpi_io_implementation() tells whether it worked.
void prefer_romio();

/// The MPI-IO implementation that this process will use, as far as it can be known, for warnings and `cairn doctor`.
/// Finding it may take 0.2 s (MPI_T loads all of MPI's components) if the environment does not name it.
struct MpiIoImplementation {
  std::string library;       ///< first line of MPI_Get_library_version
  std::string io_component;  ///< "romio321", "ompio", "romio (MPICH)" ...
  bool loses_write_errors = false;
};
MpiIoImplementation mpi_io_implementation();

}  // namespace cairn::comm
