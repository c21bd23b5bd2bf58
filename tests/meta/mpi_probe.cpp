// Tests that misbehave on purpose: mpi_main_test.py runs them one by one and checks the outcome.
#include <gtest/gtest.h>
#include <mpi.h>

#include <chrono>
#include <thread>

#include "environment.hpp"
#include "random.hpp"

namespace {

int world_rank() {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  return rank;
}

TEST(Probe, Passes) { SUCCEED(); }

TEST(Probe, HasItsPlaces) {
  EXPECT_EQ(cairn::test::program("mpi_probe").filename(), "mpi_probe");
  EXPECT_TRUE(is_directory(cairn::test::test_data("golden")));
}

TEST(Probe, FailsOnRank1) { EXPECT_NE(world_rank(), 1) << "deliberately"; }

TEST(Probe, LeavesACollectiveOnRank1) {
  ASSERT_NE(world_rank(), 1) << "deliberately";
  MPI_Barrier(MPI_COMM_WORLD);
}

TEST(Probe, HangsOnRank1) {
  if (world_rank() == 1) {
    std::this_thread::sleep_for(std::chrono::hours(1));
  }
}

TEST(Probe, SkipsEverywhere) { GTEST_SKIP() << "a reason"; }

TEST(Probe, SkipsOnRank1) {
  if (world_rank() == 1) {
    GTEST_SKIP() << "another reason";
  }
}

TEST(Probe, DrawsTheSameNumber) {
  auto random = cairn::test::make_random();
  std::uint64_t mine = random();
  std::uint64_t from_first = mine;
  MPI_Bcast(&from_first, 1, MPI_UINT64_T, 0, MPI_COMM_WORLD);
  EXPECT_EQ(mine, from_first);
}

}  // namespace
