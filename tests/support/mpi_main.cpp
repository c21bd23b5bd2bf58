// main of a test program on several ranks. CTest sets these variables:
//   CAIRN_TEST_RANKS      the world size that the test expects; any other size is a failure
//   CAIRN_TEST_TIMEOUT_S  time limit of the test; the watchdog reports shortly before it
//   CAIRN_TEST_THREADS    thread level to request from MPI: multiple (default), serialized or funneled
// Rank 0 prints as GoogleTest does, the others only failures. Every rank exits non-zero if a test failed on any rank.
#include <gtest/gtest.h>
#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#ifdef CAIRN_ADDRESS_SANITIZER
#include <sanitizer/lsan_interface.h>
#endif

#include "by_hand.hpp"
#include "environment.hpp"
#include "random.hpp"
#include "rank_listener.hpp"
#include "skip_report.hpp"
#include "watchdog.hpp"

namespace {

using cairn::test::RankListener;
using cairn::test::Watchdog;

bool world_is_as_expected(int rank, int size, const std::vector<std::string>& command) {
  const char* expected = std::getenv("CAIRN_TEST_RANKS");
  if (expected != nullptr && std::to_string(size) == expected) {
    return true;
  }
  if (rank == 0) {
    const int asked = expected == nullptr ? 0 : std::atoi(expected);
    const std::string commands = cairn::test::commands_by_hand(asked > 0 ? asked : std::max(size, 2), command);
    std::fprintf(stderr, "started on %d rank(s), but CAIRN_TEST_RANKS is %s; by hand, and its entries in ctest:\n%s",
                 size, expected == nullptr ? "not set" : expected, commands.c_str());
  }
  return false;
}

std::unique_ptr<Watchdog> start_watchdog(int rank) {
  const char* text = std::getenv("CAIRN_TEST_TIMEOUT_S");
  if (text == nullptr) {
    return nullptr;
  }
  const long timeout_s = std::strtol(text, nullptr, 10);
  const long before_s = std::max(5L, timeout_s / 10);
  return std::make_unique<Watchdog>(rank, std::chrono::seconds(std::max(1L, timeout_s - before_s)));
}

// Gives all ranks the same random numbers.
void agree_on_seed() {
  std::uint64_t seed = 0;
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (rank == 0) {
    seed = cairn::test::test_seed();
  }
  MPI_Bcast(&seed, 1, MPI_UINT64_T, 0, MPI_COMM_WORLD);
  setenv("CAIRN_TEST_SEED", std::to_string(seed).c_str(), 1);
}

// Prints the skipped tests: once if all ranks skipped equally many tests, otherwise once per rank.
void report_skips(MPI_Comm world) {
  int rank = 0;
  int size = 0;
  MPI_Comm_rank(world, &rank);
  MPI_Comm_size(world, &size);
  const std::vector<std::string> lines = cairn::test::skipped_tests();
  int bounds[2] = {static_cast<int>(lines.size()), -static_cast<int>(lines.size())};
  MPI_Allreduce(MPI_IN_PLACE, bounds, 2, MPI_INT, MPI_MIN, world);
  const bool all_alike = bounds[0] == -bounds[1];
  if (all_alike && rank != 0) {
    return;
  }
  for (const std::string& line : all_alike ? lines : cairn::test::skipped_tests(" on rank " + std::to_string(rank))) {
    std::puts(line.c_str());
  }
  std::fflush(stdout);
}

int run_tests(int rank) {
  agree_on_seed();
  const std::unique_ptr<Watchdog> watchdog = start_watchdog(rank);
  MPI_Comm own = MPI_COMM_NULL;
  MPI_Comm_dup(MPI_COMM_WORLD, &own);
  testing::TestEventListeners& listeners = testing::UnitTest::GetInstance()->listeners();
  if (rank != 0) {
    delete listeners.Release(listeners.default_result_printer());
  }
  RankListener listener(own, watchdog.get());
  listeners.Append(&listener);
  const int verdict = RUN_ALL_TESTS();
  listeners.Release(&listener);
  report_skips(own);
  // Failures outside of tests (SetUpTestSuite, environments) show only in `verdict`.
  int failed = verdict != 0 || listener.failed_somewhere() || !cairn::test::ran_some_tests() ? 1 : 0;
  MPI_Allreduce(MPI_IN_PLACE, &failed, 1, MPI_INT, MPI_MAX, own);
  MPI_Comm_free(&own);
  return failed;
}

// MPI_THREAD_MULTIPLE unless CAIRN_TEST_THREADS names another level; -1 for an unknown word.
int thread_level() {
  const char* text = std::getenv("CAIRN_TEST_THREADS");
  const std::string level = text == nullptr ? "multiple" : text;
  if (level == "multiple") return MPI_THREAD_MULTIPLE;
  if (level == "serialized") return MPI_THREAD_SERIALIZED;
  return level == "funneled" ? MPI_THREAD_FUNNELED : -1;
}

// Leaks of MPI_Init are ignored: it unloads unused components, so their leaks cannot be attributed.
void init_mpi(int& argc, char**& argv, int level) {
#ifdef CAIRN_ADDRESS_SANITIZER
  __lsan_disable();
#endif
  int provided = 0;
  MPI_Init_thread(&argc, &argv, level, &provided);
#ifdef CAIRN_ADDRESS_SANITIZER
  __lsan_enable();
#endif
}

// Must run while MPI's libraries are loaded, so that leaks.supp can name them: MPI_Finalize unloads many. Ends the
// process with an error if this program leaked memory; has no effect in builds without the address sanitizer.
void check_for_leaks() {
#ifdef CAIRN_ADDRESS_SANITIZER
  __lsan_do_leak_check();
#endif
}

}  // namespace

int main(int argc, char** argv) {
  // OMPIO of Open MPI 4.1 loses write errors; the variable is read when the first file is opened.
  setenv("OMPI_MCA_io", "romio321", 0);
  cairn::test::set_missing_places();
  const int level = thread_level();
  if (level < 0) {
    std::fprintf(stderr, "CAIRN_TEST_THREADS is not multiple, serialized or funneled\n");
    return 1;
  }
  init_mpi(argc, argv, level);
  // MPICH 4.0 uses these communicators' handlers for errors of messages on any communicator.
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
  const std::vector<std::string> command(argv, argv + argc);
  testing::InitGoogleTest(&argc, argv);  // removes the arguments that it uses
  int rank = 0;
  int size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  const int verdict = world_is_as_expected(rank, size, command) ? run_tests(rank) : 1;
  check_for_leaks();
  MPI_Finalize();
  return verdict;
}
