// Whether another process is alive, by its number and start time.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <set>

#include "os/process.hpp"

namespace cairn::os {
namespace {

TEST(Process, ThisOneIsAliveAndNamed) {
  const ProcessName self = this_process();
  EXPECT_EQ(self, this_process());
  EXPECT_EQ(self.pid, static_cast<std::uint64_t>(::getpid()));
  EXPECT_FALSE(self.host.empty());
  EXPECT_EQ(self.boot_id.size(), 36U) << self.boot_id;
  EXPECT_EQ(self.pid_namespace.substr(0, 5), "pid:[");
  EXPECT_GT(self.start_time, 0U);
  EXPECT_EQ(life_of(self.pid, self.start_time), Life::kAlive);
}

TEST(Process, AnotherStartTimeIsAnotherProcess) {
  const ProcessName self = this_process();
  EXPECT_EQ(life_of(self.pid, self.start_time - 1), Life::kDead);
  EXPECT_EQ(life_of(self.pid, 0), Life::kUnknown);  // the start time is unknown
}

TEST(Process, NumbersThatNoProcessHas) {
  EXPECT_EQ(life_of(0, 5), Life::kUnknown);
  EXPECT_EQ(life_of(~0ULL, 5), Life::kUnknown);
}

TEST(Process, AChildIsAliveThenDeadWhetherWaitedForOrNot) {
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    ::pause();
    ::_exit(0);
  }
  const auto pid = static_cast<std::uint64_t>(child);
  // Finds the child's start time by counting up from its parent's until life_of() finds the process alive.
  std::uint64_t start_time = this_process().start_time;
  while (life_of(pid, start_time) == Life::kDead && start_time < this_process().start_time + 1'000'000) ++start_time;
  ASSERT_EQ(life_of(pid, start_time), Life::kAlive);
  ::kill(child, SIGSTOP);
  EXPECT_EQ(life_of(pid, start_time), Life::kAlive);
  ::kill(child, SIGKILL);
  siginfo_t info{};
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT), 0);
  EXPECT_EQ(life_of(pid, start_time), Life::kDead);  // a zombie
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  EXPECT_EQ(life_of(pid, start_time), Life::kDead);
}

TEST(Process, NoncesDiffer) {
  std::set<std::string> seen;
  for (int n = 0; n < 1000; ++n) {
    const std::string nonce = random_nonce();
    EXPECT_EQ(nonce.size(), 16U);
    EXPECT_EQ(nonce.find_first_not_of("0123456789abcdef"), std::string::npos);
    seen.insert(nonce);
  }
  EXPECT_EQ(seen.size(), 1000U);
}

}  // namespace
}  // namespace cairn::os
