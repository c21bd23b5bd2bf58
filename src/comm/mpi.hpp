// Communicators on MPI, and the process's MPI life time.
#pragma once

#include <mpi.h>

#include <memory>
#include <string>

#include "comm/communicator.hpp"

namespace cairn::comm {

/// A communicator of our own, duplicated from `parent` (collective over it), with MPI_ERRORS_RETURN; freed with the
/// object, on all ranks, if MPI is still up. Its calls wait for other ranks for ever.
std::unique_ptr<Communicator> duplicate_mpi(MPI_Comm parent);

/// As above, and `waiting`, where CAIRN_WATCHDOG_S may replace the limit, says how long this call and those on the
/// communicator wait. Throws Error(kState) when some ranks do not come here, and Error(kUsage) on all ranks for a limit
/// that is not a number of seconds.
std::unique_ptr<Communicator> duplicate_mpi(MPI_Comm parent, Waiting waiting);

/// The MPI handle behind a communicator made by duplicate_mpi (or derived from one); MPI_COMM_NULL for simulated ones.
MPI_Comm native_handle(Communicator& communicator);

/// MPI's text for a return code.
std::string mpi_error_text(int code);

/// MPI_Init_thread/MPI_Finalize for programs of ours; sets the environment that makes MPI-IO safe before (only what is
/// unset): OMPI_MCA_io, OMPI_MCA_sharedfp. Finalizing after an exception elsewhere is not attempted: MPI_Abort. Where
/// MPI is up already it is left alone, at both ends.
class MpiSession {
 public:
  MpiSession(int& argc, char**& argv);
  ~MpiSession();
  MpiSession(const MpiSession&) = delete;
  MpiSession& operator=(const MpiSession&) = delete;

  /// What MPI_Init_thread granted (MPI_THREAD_MULTIPLE is asked for).
  [[nodiscard]] int thread_level() const { return thread_level_; }

 private:
  bool owned_ = false;
  int thread_level_ = 0;
};

/// Ends the whole job from any thread: MPI_Abort while MPI is up, else exit without clean-up.
[[noreturn]] void abort_job(int exit_code);

/// First line of MPI_Get_library_version; may be called before MPI_Init.
std::string mpi_library();

/// Makes Open MPI's MPI-IO use ROMIO, where the user chose nothing: before MPI_Init by the environment (setenv: no
/// other threads yet), later by MPI's control variable, which costs 0.2 s once (MPI_T loads all of MPI's components).
/// Takes effect until the first MPI file is opened in the process; mpi_io_implementation() tells whether it did.
void prefer_romio();

/// What MPI-IO implementation this process will use, as far as can be told, for warnings and `cairn doctor`. May cost
/// 0.2 s (MPI_T loads all of MPI's components) where the environment leaves it open.
struct MpiIoImplementation {
  std::string library;       ///< first line of MPI_Get_library_version
  std::string io_component;  ///< "romio321", "ompio", "romio (MPICH)" ...
  bool loses_write_errors = false;
};
MpiIoImplementation mpi_io_implementation();

}  // namespace cairn::comm
