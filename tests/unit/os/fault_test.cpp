// The syntax of fault rules, key by key.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>
#include <vector>

#include "os_test_tools.hpp"

namespace cairn::os {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

/// errno of each of `count` checks; 0 for none.
std::vector<int> errors_of(int count, std::string_view operation, const char* path = "dir/file") {
  std::vector<int> errors;
  for (int i = 0; i < count; ++i) {
    const auto fault = check_fault(operation, path);
    errors.push_back(fault ? fault->error : 0);
  }
  return errors;
}

TEST(Fault, WithoutRulesNothingHappens) {
  const Faults faults("");
  EXPECT_THAT(errors_of(3, "write"), ElementsAre(0, 0, 0));
}

TEST(Fault, OnlyTheNamedOperationFails) {
  for (const char* operation :
       {"open", "write", "read", "fsync", "close", "rename", "exchange", "mkdir", "unlink", "truncate", "flock"}) {
    const Faults faults(operation);
    EXPECT_THAT(errors_of(2, operation), ElementsAre(EIO, EIO)) << operation;
    EXPECT_THAT(errors_of(1, std::string_view(operation) == "open" ? "read" : "open"), ElementsAre(0));
  }
}

TEST(Fault, RankSelects) {
  const Faults faults("write:rank=2");
  set_fault_rank(1);
  EXPECT_THAT(errors_of(2, "write"), ElementsAre(0, 0));
  set_fault_rank(2);
  EXPECT_THAT(errors_of(2, "write"), ElementsAre(EIO, EIO));
  set_fault_rank(0);
}

TEST(Fault, RankIsThatOfTheThreadElseOfTheProcess) {
  const Faults faults("write:rank=2");
  set_fault_rank(2);
  std::thread([] { EXPECT_THAT(errors_of(1, "write"), ElementsAre(EIO)); }).join();  // the process's rank
  std::thread([] {
    set_fault_rank(5);
    EXPECT_THAT(errors_of(1, "write"), ElementsAre(0));
  }).join();
  EXPECT_THAT(errors_of(1, "write"), ElementsAre(EIO));  // this thread is still rank 2
  set_fault_rank(0);
}

TEST(Fault, AfterLetsSomePass) {
  const Faults faults("write:after=2");
  EXPECT_THAT(errors_of(4, "write"), ElementsAre(0, 0, EIO, EIO));
}

TEST(Fault, AfterCountsWhatMatchesOnly) {
  const Faults faults("write:after=1:path=model");
  EXPECT_THAT(errors_of(3, "write", "dir/other"), ElementsAre(0, 0, 0));
  EXPECT_THAT(errors_of(2, "write", "dir/model-1"), ElementsAre(0, EIO));
}

TEST(Fault, PathMustContain) {
  const Faults faults("open:path=checkpoint-2/model");
  EXPECT_THAT(errors_of(1, "open", "root/checkpoint-2/model-1"), ElementsAre(EIO));
  EXPECT_THAT(errors_of(1, "open", "root/checkpoint-3/model-1"), ElementsAre(0));
}

TEST(Fault, EachErrno) {
  const std::pair<const char*, int> known[] = {{"EIO", EIO},       {"ENOSPC", ENOSPC},   {"EDQUOT", EDQUOT},
                                               {"ENOENT", ENOENT}, {"EACCES", EACCES},   {"EINVAL", EINVAL},
                                               {"ENOLCK", ENOLCK}, {"ENOTSUP", ENOTSUP}, {"EMFILE", EMFILE}};
  for (const auto& [name, number] : known) {
    const Faults faults(std::string("write:errno=") + name);
    EXPECT_THAT(errors_of(2, "write"), ElementsAre(number, number)) << name;
  }
  const Faults faults("write:errno=EINTR");  // once; endless rules would mean endless retries
  EXPECT_THAT(errors_of(2, "write"), ElementsAre(EINTR, 0));
}

TEST(Fault, TimesLimits) {
  const Faults faults("fsync:times=2:after=1:errno=ENOSPC");
  EXPECT_THAT(errors_of(5, "fsync"), ElementsAre(0, ENOSPC, ENOSPC, 0, 0));
}

TEST(Fault, ShortHappensOnce) {
  const Faults faults("write:short=7:after=1");
  EXPECT_FALSE(check_fault("write", "f"));
  const auto fault = check_fault("write", "f");
  ASSERT_TRUE(fault);
  EXPECT_EQ(fault->error, 0);
  EXPECT_EQ(fault->short_bytes, 7U);
  EXPECT_FALSE(check_fault("write", "f"));
}

TEST(Fault, ALieIsForWritesAndLasts) {
  const Faults faults("write:lie:after=1");
  EXPECT_FALSE(check_fault("write", "f"));
  for (int i = 0; i < 3; ++i) {
    const auto fault = check_fault("write", "f");
    ASSERT_TRUE(fault);
    EXPECT_TRUE(fault->lies);
    EXPECT_EQ(fault->error, 0);
    EXPECT_FALSE(fault->short_bytes);
  }
  EXPECT_FALSE(check_fault("read", "f"));
}

TEST(Fault, ShortWithTimes) {
  const Faults faults("read:short=1:times=2");
  EXPECT_TRUE(check_fault("read", "f"));
  EXPECT_TRUE(check_fault("read", "f"));
  EXPECT_FALSE(check_fault("read", "f"));
}

TEST(Fault, SeveralRulesTheFirstThatAppliesWins) {
  const Faults faults("write:times=1:errno=ENOSPC;write:times=2:errno=EACCES;;read");
  EXPECT_THAT(errors_of(4, "write"), ElementsAre(ENOSPC, EACCES, EACCES, 0));
  EXPECT_THAT(errors_of(1, "read"), ElementsAre(EIO));
}

TEST(Fault, NewRulesReplaceTheOld) {
  const Faults faults("write");
  set_faults("read");
  EXPECT_THAT(errors_of(1, "write"), ElementsAre(0));
  EXPECT_THAT(errors_of(1, "read"), ElementsAre(EIO));
}

TEST(Fault, StepsThrow) {
  const Faults faults("commit.manifest:rank=0:times=1:errno=ENOSPC");
  const std::string text =
      error_of(ErrorKind::kIo, [] { fault_point("commit.manifest", "root/checkpoint-1.partial"); });
  EXPECT_THAT(text, HasSubstr("commit.manifest"));
  EXPECT_THAT(text, HasSubstr("root/checkpoint-1.partial"));
  EXPECT_THAT(text, HasSubstr("No space left on device"));
  fault_point("commit.manifest", "root");  // the second time
  fault_point("commit.rename", "root");
}

TEST(Fault, UnreadableRulesAreUsageErrors) {
  const std::pair<const char*, const char*> bad[] = {{"wirte", "unknown operation"},
                                                     {"write:rank", "no number in 'rank'"},
                                                     {"write:rank=-1", "no number"},
                                                     {"write:rank=99999999999", "no number"},
                                                     {"write:after=x", "no number in 'after'"},
                                                     {"write:times=1x", "no number in 'times'"},
                                                     {"write:times=", "no number in 'times'"},
                                                     {"write:path=", "empty path"},
                                                     {"write:errno=EWHAT", "unknown errno"},
                                                     {"write:errno", "unknown errno"},
                                                     {"write:errno=5000", "no number"},
                                                     {"write:errno=0", "is no failure"},
                                                     {"write:done", "done without an errno"},
                                                     {"write:short=0", "short=0"},
                                                     {"fsync:short=3", "short for an operation"},
                                                     {"read:lie", "lie for an operation that is not write"},
                                                     {"write:lie=2", "unknown key"},
                                                     {"write:kill=0", "unknown key"},
                                                     {"write:colour=red", "unknown key"},
                                                     {"write:pause=", "empty pause"},
                                                     {"write:", "unknown key"},
                                                     {"write:kill:errno=EIO", "more than one of"},
                                                     {":rank=1", "unknown operation"},
                                                     {"read;write:rank=x", "fault rule 'write:rank=x'"}};
  for (const auto& [rule, reason] : bad) {
    EXPECT_THAT(error_of(ErrorKind::kUsage, [&, text = rule] { set_faults(text); }), HasSubstr(reason)) << rule;
  }
  set_faults("");
}

TEST(Fault, BadRulesLeaveTheOldOnes) {
  const Faults faults("write");
  EXPECT_THROW(set_faults("nonsense"), Error);
  EXPECT_THAT(errors_of(1, "write"), ElementsAre(EIO));
}

TEST(Fault, ThreadsCountTogether) {
  const Faults faults("write:after=1000:times=50");
  std::atomic<int> failures = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (const int error : errors_of(500, "write")) failures += error != 0 ? 1 : 0;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failures, 50);
}

TEST(Fault, StopStopsAndGoesOn) {
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    set_faults("write:stop=1:times=1");
    const bool is_passed = !check_fault("write", "f");
    ::_exit(is_passed ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, WUNTRACED), child);
  EXPECT_TRUE(WIFSTOPPED(status));
  ASSERT_EQ(::kill(child, SIGCONT), 0);
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(Fault, PauseWaitsForAFileAndGoesOn) {
  const std::filesystem::path go = std::filesystem::absolute("pause-go");
  const std::filesystem::path reached = go.string() + ".reached";
  for (const auto& path : {go, reached}) std::filesystem::remove(path);
  const Faults faults("rename:times=1:pause=" + go.string());
  std::atomic<bool> is_through = false;
  std::thread paused([&] {
    EXPECT_FALSE(check_fault("rename", "f"));
    is_through = true;
  });
  while (!std::filesystem::exists(reached)) std::this_thread::yield();
  EXPECT_FALSE(check_fault("rename", "f"));  // once only
  EXPECT_FALSE(is_through);
  std::ofstream(go).close();
  paused.join();
  EXPECT_TRUE(is_through);
  for (const auto& path : {go, reached}) std::filesystem::remove(path);
}

TEST(FaultDeathTest, KillKills) {
  const auto run = [](const char* rules) {
    set_faults(rules);
    check_fault("rename", "f");
    check_fault("rename", "f");
    std::_Exit(0);
  };
  EXPECT_EXIT(run("rename:after=1:kill"), testing::KilledBySignal(SIGKILL), "");
  EXPECT_EXIT(run("rename:kill=1"), testing::KilledBySignal(SIGKILL), "");
  EXPECT_EXIT(run("rename:after=2:kill"), testing::ExitedWithCode(0), "");
}

TEST(FaultDeathTest, TheEnvironmentIsReadAtFirstUse) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");  // a new process, which has not read the environment yet
  const auto run = [](const char* rules) {
    ::setenv("CAIRN_FAULT", rules, 1);
    try {
      const auto fault = check_fault("write", "f");
      std::_Exit(fault ? fault->error : 0);
    } catch (const Error& error) {
      std::_Exit(error.kind() == ErrorKind::kUsage ? 100 : 101);
    }
  };
  EXPECT_EXIT(run("write:errno=EACCES"), testing::ExitedWithCode(EACCES), "");
  EXPECT_EXIT(run("read"), testing::ExitedWithCode(0), "");
  EXPECT_EXIT(run("nonsense"), testing::ExitedWithCode(100), "");
}

}  // namespace
}  // namespace cairn::os
