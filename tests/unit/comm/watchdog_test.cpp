// The watchdog: silent while there is progress, one line and the end without.
#include "comm/watchdog.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <thread>

#include "cairn/error.hpp"

namespace cairn::comm {
namespace {

using namespace std::chrono_literals;

std::string describe() { return "rank 3 of 8"; }

TEST(Watchdog, ZeroSecondsIsOff) {
  Watchdog watchdog(0, describe);
  watchdog.progress("write", "file");
  std::this_thread::sleep_for(50ms);
}

TEST(Watchdog, ProgressKeepsItSilent) {
  Watchdog watchdog(1.5, describe);
  for (int i = 0; i < 20; ++i) {
    watchdog.progress("write", "model.safetensors");
    std::this_thread::sleep_for(100ms);
  }
}

TEST(Watchdog, EndsAtOnceWhenDestroyed) {
  const auto start = std::chrono::steady_clock::now();
  { const Watchdog watchdog(3600, describe); }
  EXPECT_LT(std::chrono::steady_clock::now() - start, 10s);
}

TEST(Watchdog, TimeInWhichTheProcessIsStoppedDoesNotCount) {
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const Watchdog watchdog(2.0, describe);
    std::this_thread::sleep_for(200ms);
    ::raise(SIGSTOP);
    std::this_thread::sleep_for(200ms);
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, WUNTRACED), child);
  ASSERT_TRUE(WIFSTOPPED(status));
  std::this_thread::sleep_for(3s);
  ASSERT_EQ(::kill(child, SIGCONT), 0);
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(Watchdog, SecondsComeFromTheEnvironment) {
  ::unsetenv("CAIRN_WATCHDOG_S");
  EXPECT_EQ(Watchdog::seconds_from_environment(12), 12);
  ::setenv("CAIRN_WATCHDOG_S", "2.5", 1);
  EXPECT_EQ(Watchdog::seconds_from_environment(12), 2.5);
  ::setenv("CAIRN_WATCHDOG_S", "0", 1);
  EXPECT_EQ(Watchdog::seconds_from_environment(12), 0);
  for (const char* bad : {"-1", "soon", "5s", "nan", "inf"}) {
    ::setenv("CAIRN_WATCHDOG_S", bad, 1);
    EXPECT_THROW(Watchdog::seconds_from_environment(12), Error) << bad;
  }
  ::unsetenv("CAIRN_WATCHDOG_S");
}

void be_silent_after_progress() {
  Watchdog watchdog(0.3, describe);
  watchdog.progress("write", "dir/model\n.safetensors");
  std::this_thread::sleep_for(60s);
}

TEST(WatchdogDeathTest, SilenceEndsTheProcessWithOneLine) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(be_silent_after_progress(), testing::ExitedWithCode(kWatchdogExitCode),
              "cairn: error: no progress for 0.3 s in phase 'write', file 'dir/model.x0a.safetensors' on rank 3 of 8");
}

TEST(WatchdogDeathTest, SilenceFromTheStartHasNoFile) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto wait = [] {
    const Watchdog watchdog(0.2, describe);
    std::this_thread::sleep_for(60s);
  };
  EXPECT_EXIT(wait(), testing::ExitedWithCode(kWatchdogExitCode), "in phase 'start' on rank 3 of 8");
}

}  // namespace
}  // namespace cairn::comm
