// The watchdog: silent while there is progress; otherwise it logs, and calls back or ends the process.
#include "comm/watchdog.hpp"

#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <string>
#include <thread>

#include "base/exit_codes.hpp"
#include "cairn/error.hpp"
#include "manual_clock.hpp"

namespace {
std::atomic<int> system_clock_ahead_s = 0;
}

/// Replaces the C library's function: a system clock that is ahead of the kernel's.
extern "C" int clock_gettime(clockid_t clock, timespec* time) noexcept {
  const int result = static_cast<int>(::syscall(SYS_clock_gettime, clock, time));
  if (result == 0 && clock == CLOCK_REALTIME) time->tv_sec += system_clock_ahead_s;
  return result;
}

namespace cairn::comm {
namespace {

using namespace std::chrono_literals;

constexpr const char* kRank = "rank 3 of 8";

using test::ManualClock;

Waiting limit(double seconds, OnSilence then = OnSilence::kEndProcess) { return {seconds, then, {}}; }

TEST(Watchdog, ZeroSecondsIsOff) {
  Watchdog watchdog(limit(0), kRank);
  watchdog.begin_call();
  watchdog.progress("write", "file");
  std::this_thread::sleep_for(50ms);
}

TEST(Watchdog, ProgressKeepsItSilent) {
  ManualClock clock;
  Watchdog watchdog(limit(10), kRank, clock);
  watchdog.begin_call();
  for (int i = 0; i < 20; ++i) {
    watchdog.progress("write", "model.safetensors");
    clock.pass(1s);
    EXPECT_EQ(watchdog.silent_s(), 0);
    clock.pass(1s);
    EXPECT_EQ(watchdog.silent_s(), 1);
  }
}

TEST(Watchdog, EndsAtOnceWhenDestroyed) {
  const auto start = std::chrono::steady_clock::now();
  {
    Watchdog watchdog(limit(3600), kRank);
    watchdog.begin_call();
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, 600s);
}

TEST(Watchdog, SilenceBetweenCallsDoesNotCount) {
  Watchdog watchdog(limit(0.3), kRank);
  watchdog.begin_call();
  watchdog.end_call();
  std::this_thread::sleep_for(1s);
  EXPECT_EQ(watchdog.silent_s(), 0);
}

/// The tick during which the call ends is not counted.
TEST(Watchdog, SilenceOfACallThatIsOverIsNotSaid) {
  ManualClock clock;
  std::atomic<int> calls = 0;
  Watchdog watchdog({10, OnSilence::kCallback, [&](const std::string&) { ++calls; }}, kRank, clock);
  watchdog.begin_call();
  for (int second = 0; second < 10; ++second) clock.pass(1s);
  EXPECT_EQ(watchdog.silent_s(), 9);
  watchdog.end_call();
  clock.jump(1s);
  std::this_thread::sleep_for(50ms);  // time enough for a wrong callback
  EXPECT_EQ(calls, 0);
}

TEST(Watchdog, AWaitSeesTheSilenceAndIsLeftToItself) {
  ManualClock clock;
  Watchdog watchdog(limit(10), kRank, clock);
  watchdog.begin_wait();
  for (int second = 1; second < 15; ++second) {
    clock.pass(1s);
    EXPECT_EQ(watchdog.silent_s(), second);
  }
  watchdog.progress();
  EXPECT_EQ(watchdog.silent_s(), 0);
  watchdog.end_wait();
}

TEST(Watchdog, SilenceOfAStuckRankIsALinePerLimitAndACallback) {
  ManualClock clock;
  std::atomic<int> calls = 0;
  std::string said;
  testing::internal::CaptureStderr();
  {
    Watchdog watchdog({10, OnSilence::kCallback,
                       [&](const std::string& message) {
                         if (calls++ == 0) said = message;
                       }},
                      kRank, clock);
    watchdog.begin_call();
    watchdog.progress("fsync");
    clock.pass(1s);
    for (int second = 1; second < 25; ++second) {
      clock.pass(1s);
      EXPECT_EQ(calls, second / 10) << second;
    }
  }
  const std::string lines = testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("no progress for 10 s in phase 'fsync' on rank 3 of 8"), std::string::npos) << said;
  EXPECT_NE(lines.find("cairn: error: " + said), std::string::npos) << lines;
}

TEST(Watchdog, GoesByAClockThatNobodySets) {
  std::atomic<int> calls = 0;
  system_clock_ahead_s = 20;  // until the callback below
  Watchdog watchdog({0.2, OnSilence::kCallback, [&](const std::string&) { ++calls; }}, kRank);
  watchdog.begin_call();
  for (int i = 0; i < 500 && calls == 0; ++i) std::this_thread::sleep_for(10ms);
  EXPECT_GT(calls, 0);
  system_clock_ahead_s = 0;
  watchdog.end_call();
}

TEST(Watchdog, TakesNoSignalOfTheProgram) {
  static std::atomic<pthread_t> taker{};
  struct sigaction action {};
  struct sigaction before {};
  action.sa_handler = [](int) { taker = ::pthread_self(); };
  ASSERT_EQ(::sigaction(SIGUSR1, &action, &before), 0);
  sigset_t usr1;
  ::sigemptyset(&usr1);
  ::sigaddset(&usr1, SIGUSR1);
  Watchdog watchdog(limit(3600), kRank);
  ASSERT_EQ(::pthread_sigmask(SIG_BLOCK, &usr1, nullptr), 0);
  ASSERT_EQ(::kill(::getpid(), SIGUSR1), 0);
  std::this_thread::sleep_for(50ms);
  EXPECT_EQ(taker, pthread_t{}) << "a thread of the library took it";
  ::pthread_sigmask(SIG_UNBLOCK, &usr1, nullptr);
  EXPECT_EQ(taker, ::pthread_self());
  ::sigaction(SIGUSR1, &before, nullptr);
}

TEST(Watchdog, AnErrorIsOnlySaidWhereTheRankIsStuck) {
  ManualClock clock;
  testing::internal::CaptureStderr();
  {
    Watchdog watchdog(limit(10, OnSilence::kError), kRank, clock);
    watchdog.begin_call();
    for (int second = 0; second <= 10; ++second) clock.pass(1s);
  }
  EXPECT_NE(testing::internal::GetCapturedStderr().find("no progress for 10 s in phase 'start' on rank 3 of 8"),
            std::string::npos);
}

/// The measuring thread is also stopped, and sees one long tick.
TEST(Watchdog, TimeInWhichTheProcessIsStoppedDoesNotCount) {
  ManualClock clock;
  std::atomic<int> calls = 0;
  Watchdog watchdog({10, OnSilence::kCallback, [&](const std::string&) { ++calls; }}, kRank, clock);
  watchdog.begin_call();
  clock.pass(1s);
  clock.pass(3600s);
  EXPECT_EQ(watchdog.silent_s(), 2) << "two ticks";
  EXPECT_EQ(calls, 0);
}

TEST(Watchdog, SecondsComeFromTheEnvironment) {
  ::unsetenv("CAIRN_WATCHDOG_S");
  EXPECT_EQ(Watchdog::seconds_from_environment(12), 12);
  ::setenv("CAIRN_WATCHDOG_S", "2.5", 1);
  EXPECT_EQ(Watchdog::seconds_from_environment(12), 2.5);
  ::setenv("CAIRN_WATCHDOG_S", "0", 1);
  EXPECT_EQ(Watchdog::seconds_from_environment(12), 0);
  ::setenv("CAIRN_WATCHDOG_S", "1e30", 1);
  EXPECT_EQ(Watchdog::seconds_from_environment(12), os::kLongestWaitS);
  ::unsetenv("CAIRN_WATCHDOG_S");
  EXPECT_EQ(Watchdog::seconds_from_environment(1e10), os::kLongestWaitS) << "clocks would overflow";
  for (const char* bad : {"-1", "soon", "5s", "nan", "inf"}) {
    ::setenv("CAIRN_WATCHDOG_S", bad, 1);
    EXPECT_THROW(Watchdog::seconds_from_environment(12), Error) << bad;
  }
  ::unsetenv("CAIRN_WATCHDOG_S");
}

void be_silent_after_progress() {
  Watchdog watchdog(limit(0.3), kRank);
  watchdog.begin_call();
  watchdog.progress("write", "dir/model\n.safetensors");
  watchdog.step("write data files");
  std::this_thread::sleep_for(60s);
}

TEST(WatchdogDeathTest, SilenceEndsTheProcessWithOneLine) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(be_silent_after_progress(), testing::ExitedWithCode(base::kExitSilent),
              "cairn: error: no progress for 0.3 s in phase 'write', step 'write data files', file "
              "'dir/model.x0a.safetensors' on rank 3 of 8");
}

TEST(WatchdogDeathTest, SilenceFromTheStartHasNoFile) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto wait = [] {
    Watchdog watchdog(limit(0.2), kRank);
    watchdog.begin_call();
    std::this_thread::sleep_for(60s);
  };
  EXPECT_EXIT(wait(), testing::ExitedWithCode(base::kExitSilent), "in phase 'start' on rank 3 of 8");
}

}  // namespace
}  // namespace cairn::comm
