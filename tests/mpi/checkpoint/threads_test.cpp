// Saves and loads respect the thread level that was requested from MPI (CAIRN_TEST_THREADS; one ctest entry each).
// Below MULTIPLE only this thread calls MPI, which the test checks through MPI's profiling interface.
#include <gtest/gtest.h>
#include <mpi.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "cairn/checkpoint.hpp"
#include "comm/mpi.hpp"
#include "sharded_state.hpp"
#include "shared_temp_dir.hpp"
#include "world.hpp"

namespace {

const std::thread::id first_thread = std::this_thread::get_id();
std::atomic<std::uint64_t> calls{0};
std::atomic<std::uint64_t> calls_of_others{0};

template <class Call>
int counted(Call call) {
  ++calls;
  if (std::this_thread::get_id() != first_thread) ++calls_of_others;
  return call();
}

}  // namespace

extern "C" {

int MPI_Test(MPI_Request* request, int* flag, MPI_Status* status) {
  return counted([&] { return PMPI_Test(request, flag, status); });
}
int MPI_Testall(int count, MPI_Request* requests, int* flag, MPI_Status* statuses) {
  return counted([&] { return PMPI_Testall(count, requests, flag, statuses); });
}
int MPI_Isend(const void* data, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm, MPI_Request* request) {
  return counted([&] { return PMPI_Isend(data, count, type, to, tag, comm, request); });
}
int MPI_Irecv(void* data, int count, MPI_Datatype type, int from, int tag, MPI_Comm comm, MPI_Request* request) {
  return counted([&] { return PMPI_Irecv(data, count, type, from, tag, comm, request); });
}
int MPI_Iprobe(int from, int tag, MPI_Comm comm, int* flag, MPI_Status* status) {
  return counted([&] { return PMPI_Iprobe(from, tag, comm, flag, status); });
}
int MPI_Improbe(int from, int tag, MPI_Comm comm, int* flag, MPI_Message* message, MPI_Status* status) {
  return counted([&] { return PMPI_Improbe(from, tag, comm, flag, message, status); });
}
int MPI_Iallreduce(const void* mine, void* all, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm,
                   MPI_Request* request) {
  return counted([&] { return PMPI_Iallreduce(mine, all, count, type, op, comm, request); });
}
int MPI_Ibcast(void* data, int count, MPI_Datatype type, int root, MPI_Comm comm, MPI_Request* request) {
  return counted([&] { return PMPI_Ibcast(data, count, type, root, comm, request); });
}
int MPI_File_open(MPI_Comm comm, const char* name, int mode, MPI_Info info, MPI_File* file) {
  return counted([&] { return PMPI_File_open(comm, name, mode, info, file); });
}
int MPI_File_read_at(MPI_File file, MPI_Offset at, void* data, int count, MPI_Datatype type, MPI_Status* status) {
  return counted([&] { return PMPI_File_read_at(file, at, data, count, type, status); });
}
int MPI_File_read_at_all(MPI_File file, MPI_Offset at, void* data, int count, MPI_Datatype type, MPI_Status* status) {
  return counted([&] { return PMPI_File_read_at_all(file, at, data, count, type, status); });
}
int MPI_File_write_at(MPI_File file, MPI_Offset at, const void* data, int count, MPI_Datatype type,
                      MPI_Status* status) {
  return counted([&] { return PMPI_File_write_at(file, at, data, count, type, status); });
}
int MPI_File_write_at_all(MPI_File file, MPI_Offset at, const void* data, int count, MPI_Datatype type,
                          MPI_Status* status) {
  return counted([&] { return PMPI_File_write_at_all(file, at, data, count, type, status); });
}
int MPI_File_sync(MPI_File file) {
  return counted([&] { return PMPI_File_sync(file); });
}

}  // extern "C"

namespace cairn::test {
namespace {

/// The thread level of this ctest entry.
int expected_level() {
  const char* text = std::getenv("CAIRN_TEST_THREADS");
  const std::string level = text == nullptr ? "multiple" : text;
  if (level == "funneled") return MPI_THREAD_FUNNELED;
  return level == "serialized" ? MPI_THREAD_SERIALIZED : MPI_THREAD_MULTIPLE;
}

TEST(Threads, MpiGrantedTheLevelThatThisIsATestOf) {
  int level = -1;
  ASSERT_EQ(MPI_Query_thread(&level), MPI_SUCCESS);
  EXPECT_EQ(level, expected_level());
}

class OnEngine : public testing::TestWithParam<const char*> {};

TEST_P(OnEngine, SavesAndLoadsKeepToTheLevel) {
  const World world;
  const SharedTempDir root;
  Options options = options_for_small_state(GetParam());
  options.overwrite = true;
  const std::uint64_t before = calls;
  const std::uint64_t before_of_others = calls_of_others;
  {
    Checkpointer checkpointer(MPI_COMM_WORLD, root.path(), options);
    RankState state(small_state(), Cut::kMixed, world.rank, world.ranks);
    state.fill(1);
    for (int save = 0; save < 2; ++save) checkpointer.save(1, state.sources());
    EXPECT_EQ(checkpointer.latest(), 1U);
    RankState loaded(small_state(), Cut::kFlat, world.rank, world.ranks);
    checkpointer.load(1, loaded.targets());
    EXPECT_EQ(loaded.matching_bytes(1), loaded.bytes());
  }
  EXPECT_GT(calls - before, 100U) << "the calls of MPI were not seen";
  const bool reads_by_a_thread = expected_level() == MPI_THREAD_MULTIPLE && options.engine.name == "mpiio" &&
                                 comm::mpi_io_implementation().io_component.find("romio") != std::string::npos;
  if (reads_by_a_thread) {
    EXPECT_GT(calls_of_others - before_of_others, 0U) << "the thread that reads was not seen";
  } else {
    EXPECT_EQ(calls_of_others - before_of_others, 0U);
  }
}

TEST_P(OnEngine, AsynchronousSavesKeepToTheLevel) {
  const World world;
  const SharedTempDir root;
  const std::uint64_t before_of_others = calls_of_others;
  std::vector<std::string> warnings;
  {
    Checkpointer checkpointer(MPI_COMM_WORLD, root.path(), options_for_small_state(GetParam()));
    RankState state(small_state(), Cut::kMixed, world.rank, world.ranks);
    state.fill(1);
    warnings = checkpointer.save_async(1, state.sources()).wait().warnings;
    RankState loaded(small_state(), Cut::kFlat, world.rank, world.ranks);
    checkpointer.load(1, loaded.targets());
    EXPECT_EQ(loaded.matching_bytes(1), loaded.bytes());
  }
  const std::uint64_t of_others = calls_of_others - before_of_others;
  const bool is_said = std::ranges::any_of(
      warnings, [](const std::string& warning) { return warning.find("MPI_THREAD_MULTIPLE") != std::string::npos; });
  const bool is_multiple = expected_level() == MPI_THREAD_MULTIPLE;
  EXPECT_EQ(of_others != 0, is_multiple) << of_others;
  EXPECT_EQ(is_said, !is_multiple) << "that the save was synchronous";
}

INSTANTIATE_TEST_SUITE_P(Engines, OnEngine, testing::Values("mpiio", "posix", "direct"));

}  // namespace
}  // namespace cairn::test
