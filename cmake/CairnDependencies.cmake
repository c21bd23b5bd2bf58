# Libraries that Cairn uses. Each one is found here and nowhere else.

# Where Debian has both Open MPI and MPICH, take Open MPI unless another is requested (-DMPI_EXECUTABLE_SUFFIX=.mpich,
# or MPI_CXX_COMPILER). An mpicxx elsewhere that comes first in PATH (a module, Spack) takes precedence.
if(NOT DEFINED MPI_EXECUTABLE_SUFFIX AND NOT DEFINED MPI_CXX_COMPILER)
  find_program(CAIRN_MPICXX mpicxx)
  get_filename_component(mpi_folder "${CAIRN_MPICXX}" DIRECTORY)
  if(CAIRN_MPICXX AND EXISTS "${mpi_folder}/mpicxx.openmpi")
    set(MPI_EXECUTABLE_SUFFIX .openmpi)
  endif()
endif()
set(MPI_CXX_SKIP_MPICXX ON)  # the C++ bindings of MPI-2 were removed long ago
find_package(MPI REQUIRED COMPONENTS CXX)
find_package(nlohmann_json 3.10 REQUIRED)
find_package(fmt REQUIRED)
find_package(spdlog REQUIRED)
if(CAIRN_BUILD_PROGRAM)
  find_package(CLI11 REQUIRED)
endif()
find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(ISAL REQUIRED IMPORTED_TARGET libisal)
pkg_check_modules(URING REQUIRED IMPORTED_TARGET liburing)
if(CAIRN_BUILD_TESTS)
  find_package(GTest REQUIRED)
  pkg_check_modules(FUSE3 IMPORTED_TARGET fuse3)  # for tests/fault: storage that fails on command
endif()
if(CAIRN_BUILD_BENCH)
  find_package(benchmark QUIET)
endif()
