// Communicators on MPI, and the process's MPI life time.
#pragma once

#include <mpi.h>

#include <memory>

#include "comm/communicator.hpp"

namespace cairn::comm {

/// A communicator of our own, duplicated from `parent` (collective over it), with MPI_ERRORS_RETURN; freed with the
/// object if MPI is still up.
std::unique_ptr<Communicator> duplicate_mpi(MPI_Comm parent);

/// The MPI handle behind a communicator made by duplicate_mpi (or derived from one); MPI_COMM_NULL for simulated ones.
MPI_Comm native_handle(Communicator& communicator);

/// MPI_Init_thread/MPI_Finalize for programs of ours; sets the environment that makes MPI-IO safe before (only what is
/// unset): OMPI_MCA_io, OMPI_MCA_sharedfp. Finalizing after an exception elsewhere is not attempted: MPI_Abort.
class MpiSession {
 public:
  MpiSession(int& argc, char**& argv);
  ~MpiSession();
  MpiSession(const MpiSession&) = delete;
  MpiSession& operator=(const MpiSession&) = delete;
};

/// Sets, where unset, the environment that makes Open MPI's MPI-IO use ROMIO. Takes effect until the first MPI file is
/// opened in the process.
void prefer_romio();

/// What MPI-IO implementation this process will use, as far as can be told, for warnings and `cairn doctor`.
struct MpiIoImplementation {
  std::string library;      ///< first line of MPI_Get_library_version
  std::string io_component;  ///< "romio321", "ompio", "romio (MPICH)" ...
  bool loses_write_errors = false;
};
MpiIoImplementation mpi_io_implementation();

}  // namespace cairn::comm
