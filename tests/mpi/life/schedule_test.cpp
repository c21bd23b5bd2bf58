// A schedule on ranks of MPI: signals to one of them, time, limits of jobs, and ranks that disagree.
#include <gtest/gtest.h>
#include <mpi.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <thread>

#include "cairn/schedule.hpp"
#include "same_text.hpp"
#include "world.hpp"

namespace cairn::test {
namespace {

using std::chrono::system_clock;

/// The step and reason of the first look at which something is due; all ranks must agree.
std::pair<std::uint64_t, Due> first_due(Schedule& schedule, std::uint64_t from, std::uint64_t to, double step_s = 0) {
  for (std::uint64_t step = from; step <= to; ++step) {
    std::this_thread::sleep_for(std::chrono::duration<double>(step_s));
    Due due = schedule.look(step);
    std::uint64_t most = due.save ? 1 : 0, least = most;
    MPI_Allreduce(MPI_IN_PLACE, &most, 1, MPI_UINT64_T, MPI_MAX, MPI_COMM_WORLD);
    MPI_Allreduce(MPI_IN_PLACE, &least, 1, MPI_UINT64_T, MPI_MIN, MPI_COMM_WORLD);
    EXPECT_EQ(most, least) << step;
    if (due.save) return {step, due};
  }
  return {0, {}};
}

TEST(Schedules, StepsAreDueOnAllRanks) {
  ScheduleOptions options;
  options.every_steps = 4;
  Schedule schedule(MPI_COMM_WORLD, options);
  EXPECT_EQ(first_due(schedule, 1, 9).first, 4U);
  EXPECT_EQ(first_due(schedule, 5, 9).first, 8U);
}

TEST(Schedules, ASignalToOneRankIsDueOnAllWithinTwoLooks) {
  const World world;
  Schedule schedule(MPI_COMM_WORLD);
  EXPECT_FALSE(schedule.look(1).save);
  for (const int signal : {SIGUSR1, SIGTERM}) {
    if (world.rank == world.ranks - 1) {
      ::raise(signal);
      ::raise(signal);
    }
    const auto [step, due] = first_due(schedule, 2, 9);
    EXPECT_EQ(step, 3U);
    EXPECT_EQ(due.stop, signal == SIGTERM);
    EXPECT_EQ(due.why, signal == SIGTERM ? "SIGTERM" : "SIGUSR1");
    if (signal == SIGUSR1) {
      EXPECT_FALSE(schedule.look(1).save);
    }
  }
}

TEST(Schedules, TimeIsDueByTheClockOfRank0) {
  ScheduleOptions options;
  options.every_seconds = 0.05;
  Schedule schedule(MPI_COMM_WORLD, options);
  const auto [step, due] = first_due(schedule, 1, 1000, 0.01);
  EXPECT_GE(step, 3U);
  EXPECT_NE(due.why.find("s after the last save was due"), std::string::npos) << due.why;
}

TEST(Schedules, TheEndOfTheJobIsMet) {
  ScheduleOptions options;
  options.time_limit = system_clock::now() + std::chrono::seconds(60);
  options.limit_margin_s = 10;
  const World world;
  {
    Schedule schedule(MPI_COMM_WORLD, options);
    EXPECT_EQ(schedule.time_limit().has_value(), world.rank == 0);
    EXPECT_EQ(first_due(schedule, 1, 3).first, 0U);
    Report report;
    report.seconds = 3000;
    schedule.saved(report);  // of no save
    EXPECT_EQ(first_due(schedule, 1, 3).first, 0U);
    report.seconds = 30;
    report.directory = "checkpoint-3";
    schedule.saved(report);
    const auto [step, due] = first_due(schedule, 4, 9);
    EXPECT_EQ(step, 5U);
    EXPECT_TRUE(due.stop);
  }
  options.meets_time_limit = false;
  Schedule schedule(MPI_COMM_WORLD, options);
  EXPECT_FALSE(schedule.time_limit().has_value());
}

TEST(Schedules, RanksThatDisagreeAreTold) {
  const World world;
  if (world.ranks == 1) {
    Schedule alone(MPI_COMM_WORLD);
    static_cast<void>(alone.look(5));
    EXPECT_NO_THROW(static_cast<void>(alone.look(7)));
    return;
  }
  ScheduleOptions options;
  options.every_steps = world.rank == 0 ? 4 : 5;
  expect_error_everywhere(ErrorKind::kUsage, "option 'every_steps' differs between the ranks",
                          [&] { const Schedule schedule(MPI_COMM_WORLD, options); });
  Schedule schedule(MPI_COMM_WORLD);
  static_cast<void>(schedule.look(world.rank == 1 ? 6U : 5U));
  expect_error_everywhere(ErrorKind::kUsage, "different steps, 5 to 6", [&] { static_cast<void>(schedule.look(7)); });
}

TEST(Schedules, ASignalThatCannotBeCaughtIsRefused) {
  ScheduleOptions signals;
  signals.save_signals = {SIGKILL};
  expect_error_everywhere(ErrorKind::kUsage, "signal 9 cannot be caught",
                          [&] { const Schedule none(MPI_COMM_WORLD, signals); });
}

TEST(Schedules, EndWhileANumberIsUnderWay) {
  for (int i = 0; i < 20; ++i) {
    Schedule schedule(MPI_COMM_WORLD);
    if (i % 2 == 0) static_cast<void>(schedule.look(1));
    Schedule other = std::move(schedule);
    static_cast<void>(other.look(2));
  }
}

}  // namespace
}  // namespace cairn::test
