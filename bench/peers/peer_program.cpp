// cairn_peer_program: saves or loads the benchmark's state with parallel HDF5 or with the raw pattern, and prints one
// JSON document.
//
//   mpirun -n 4 cairn_peer_program hdf5 save --dir DIR --config config.json --layout tp=2,pp=2 --collective
//   mpirun -n 3 cairn_peer_program raw load --dir DIR --size 2147483648 --direct
//
// Every rank parses the same arguments. A failure on any rank ends the job with a line on standard error.
#include <mpi.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <nlohmann/json.hpp>

#include "peer_clock.hpp"
#include "raw_files.hpp"
#ifdef CAIRN_PEER_HDF5
#include <hdf5.h>

#include "hdf5_files.hpp"
#include "peer_state.hpp"
#endif

namespace {

using namespace cairn::peers;

struct Arguments {
  std::string system;
  std::string operation;
  std::string directory;
  std::string config;
  std::string layout;
  std::uint64_t size_bytes = 0;
  bool is_direct = false;
  bool is_collective = false;
};

bool on_all_ranks(bool mine) {
  int value = mine ? 1 : 0;
  check_mpi(MPI_Allreduce(MPI_IN_PLACE, &value, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD), "MPI_Allreduce");
  return value == 1;
}

nlohmann::ordered_json document_of(const Seconds& seconds) {
  return {{"seconds_max", seconds.max}, {"seconds_min", seconds.min}};
}

nlohmann::ordered_json run_raw(const Arguments& arguments) {
  const RawOptions options{arguments.directory, arguments.size_bytes, arguments.is_direct};
  if (arguments.operation == "save") return document_of(raw_save(options));
  const RawLoaded loaded = raw_load(options);
  auto document = document_of(loaded.seconds);
  document["equal"] = on_all_ranks(loaded.is_equal);
  return document;
}

#ifdef CAIRN_PEER_HDF5
nlohmann::ordered_json run_hdf5(const Arguments& arguments) {
  int rank = 0;
  check_mpi(MPI_Comm_rank(MPI_COMM_WORLD, &rank), "MPI_Comm_rank");
  const Hdf5Options options{arguments.directory, arguments.is_collective};
  PeerState state(arguments.config, arguments.layout, rank);
  if (arguments.operation == "save") {
    state.fill();
    return document_of(hdf5_save(options, state));
  }
  state.overwrite();
  auto document = document_of(hdf5_load(options, state));
  document["equal"] = on_all_ranks(state.is_equal());
  return document;
}

std::string hdf5_version() {
  unsigned major = 0, minor = 0, release = 0;
  H5get_libversion(&major, &minor, &release);
  return std::to_string(major) + "." + std::to_string(minor) + "." + std::to_string(release);
}
#else
nlohmann::ordered_json run_hdf5(const Arguments&) { throw std::runtime_error("built without parallel HDF5"); }
std::string hdf5_version() { return ""; }
#endif

int run(const Arguments& arguments) {
  int rank = 0;
  check_mpi(MPI_Comm_rank(MPI_COMM_WORLD, &rank), "MPI_Comm_rank");
  nlohmann::ordered_json document;
  if (arguments.system == "versions") {
    char text[MPI_MAX_LIBRARY_VERSION_STRING];
    int length = 0;
    check_mpi(MPI_Get_library_version(text, &length), "MPI_Get_library_version");
    document = {{"mpi", std::string(text)}, {"hdf5", hdf5_version()}};
  } else {
    document = arguments.system == "raw" ? run_raw(arguments) : run_hdf5(arguments);
  }
  if (rank == 0) std::printf("%s\n", document.dump().c_str());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  Arguments arguments;
  CLI::App app("Peers of Cairn for its benchmark");
  app.add_option("system", arguments.system)->required()->check(CLI::IsMember({"hdf5", "raw", "versions"}));
  app.add_option("operation", arguments.operation)->check(CLI::IsMember({"save", "load"}));
  app.add_option("--dir", arguments.directory);
  app.add_option("--config", arguments.config);
  app.add_option("--layout", arguments.layout);
  app.add_option("--size", arguments.size_bytes);
  app.add_flag("--direct", arguments.is_direct);
  app.add_flag("--collective", arguments.is_collective);
  try {
    app.parse(argc, argv);
    const int code = run(arguments);
    MPI_Finalize();
    return code;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "cairn_peer_program: %s\n", error.what());
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
}
