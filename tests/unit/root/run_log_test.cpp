// The log of a root as a file: who appends, a root without one, failures, and making it smaller.
#include "root/run_log.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "cairn/error.hpp"
#include "cairn/log.hpp"
#include "environment.hpp"
#include "faults.hpp"
#include "root/lease.hpp"
#include "root/lease_folder.hpp"
#include "root/root.hpp"
#include "temp_dir.hpp"

namespace cairn::test {
namespace {

namespace fs = std::filesystem;
using root::RunLog;

/// A root whose lease is held.
class RunLogOfRoot : public testing::Test {
 protected:
  RunLogOfRoot() { lease_.hold(); }
  ~RunLogOfRoot() override { set_log_sink({}); }

  static format::LogCall call(const char* what, std::uint64_t step) {
    format::LogCall call;
    call.what = what;
    call.step = step;
    call.outcome = format::kLogGood;
    call.bytes = 1;
    return call;
  }
  static format::LogCall save(std::uint64_t step) { return call(format::kLogSave, step); }
  static format::LogCall load(std::uint64_t step) { return call(format::kLogLoad, step); }
  [[nodiscard]] fs::path path() const { return root_ / format::kRunLogFile; }
  /// Saves and loads in the log, also those in sums.
  [[nodiscard]] std::uint64_t calls() const {
    const format::RunLog log = root::read_run_log(root_.path());
    std::uint64_t all = log.calls.size();
    for (const format::LogSum& sum : log.sums) all += sum.calls();
    return all;
  }
  /// Appends until the log is larger than its bound; returns the number of calls in it.
  std::uint64_t fill() {
    std::string text = fs::exists(path()) ? read_file(path()) : "";
    format::LogCall one = save(1);
    one.run_id = std::string(400, 'r');
    while (text.size() <= root::kRunLogBoundBytes) {
      one.step = *one.step + 1;
      text += format::encode_log_line(one) + "\n";
    }
    write_file(path(), text);
    return calls();
  }
  void count_warnings() {
    set_log_sink([this](LogLevel level, std::string_view line) {
      if (level == LogLevel::kWarning && line.find("the log of") != std::string_view::npos) ++warnings_;
    });
  }
  [[nodiscard]] bool has_temporary() const {
    const auto is_temporary = [](const fs::directory_entry& entry) { return entry.path().extension() == ".tmp"; };
    return std::ranges::any_of(fs::directory_iterator(root_ / root::kLeaseDirectory), is_temporary) ||
           std::ranges::any_of(fs::directory_iterator(root_.path()), is_temporary);
  }

  TempDir root_;
  root::Lease lease_{root_.path(), {}};
  RunLog log_{root_.path()};
  std::atomic<int> warnings_{0};
};

TEST_F(RunLogOfRoot, HasALineForEachCall) {
  log_.append(save(1), &lease_);
  log_.append(load(1));
  const format::RunLog read = root::read_run_log(root_.path());
  ASSERT_EQ(read.calls.size(), 2U);
  EXPECT_EQ(read.calls[0].what, format::kLogSave);
  EXPECT_EQ(read.calls[1].what, format::kLogLoad);
  EXPECT_THAT(read.calls[1].tool, testing::StartsWith("cairn "));
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  EXPECT_NEAR(static_cast<double>(read.calls[1].time_ms),
              static_cast<double>(std::chrono::duration_cast<std::chrono::milliseconds>(now).count()), 60'000);
  EXPECT_TRUE(root::list_root(root_.path()).empty()) << "a log is not a checkpoint";
  EXPECT_EQ(root::newest_step(root_.path()), std::nullopt);
  EXPECT_FALSE(root::parse_root_name(format::kRunLogFile)) << "savers leave the name alone";
}

TEST_F(RunLogOfRoot, IsNotMadeWhereNoSaverWas) {
  const TempDir foreign;
  RunLog(foreign.path()).append(load(1));
  RunLog(foreign / "missing").append(load(1));
  EXPECT_TRUE(fs::is_empty(foreign.path()));
  EXPECT_TRUE(root::read_run_log(foreign.path()).calls.empty());
}

TEST_F(RunLogOfRoot, FailsNoCallAndWarnsOnce) {
  count_warnings();
  int expected = 0;
  for (const char* rule :
       {"open:path=cairn.log:errno=ENOSPC", "open:path=cairn.log:errno=30", "open:path=cairn.log:errno=EACCES",
        "write:path=cairn.log:errno=EDQUOT", "read:path=cairn.log", "stat:path=.cairn"}) {
    SCOPED_TRACE(rule);
    RunLog log(root_.path());
    log.append(save(1), &lease_);
    const std::uint64_t before = calls();
    {
      const Faults faults(rule);
      for (std::uint64_t step = 2; step < 5; ++step) log.append(save(step), &lease_);
    }
    EXPECT_EQ(calls(), before);
    EXPECT_EQ(warnings_, ++expected);
    log.append(save(5), &lease_);
    EXPECT_EQ(calls(), before + 1) << "it works again";
  }
}

TEST_F(RunLogOfRoot, AReaderThatMayNotWriteIsNotWarned) {
  count_warnings();
  for (const char* rule : {"open:path=cairn.log:errno=30", "open:path=cairn.log:errno=EACCES"}) {
    const Faults faults(rule);
    RunLog(root_.path()).append(load(1));
  }
  EXPECT_EQ(warnings_, 0);
  const Faults faults("open:path=cairn.log:errno=ENOSPC");
  RunLog(root_.path()).append(load(1));
  EXPECT_EQ(warnings_, 1);
}

TEST_F(RunLogOfRoot, TheSaverMakesALargeLogSmaller) {
  const std::uint64_t before = fill();
  fs::create_directory(root_ / "checkpoint-3");
  log_.append(load(9));
  EXPECT_GT(fs::file_size(path()), root::kRunLogBoundBytes) << "a load has no lease";
  write_file(root_ / ".cairn" / "log.0123456789abcdef.tmp", "left by a crash");
  log_.append(save(10), &lease_);
  EXPECT_LT(fs::file_size(path()), root::kRunLogBoundBytes / 2);
  EXPECT_EQ(calls(), before + 2);
  EXPECT_FALSE(has_temporary());
  const auto steps = format::log_by_step(root::read_run_log(root_.path()));
  EXPECT_TRUE(steps.contains(3)) << "its checkpoint is there";
  EXPECT_FALSE(steps.contains(4));
  log_.append(save(11), &lease_);
  EXPECT_EQ(calls(), before + 3);
}

TEST_F(RunLogOfRoot, AFailureToMakeItSmallerLosesNothing) {
  count_warnings();
  std::uint64_t before = fill();
  int expected = 0;
  for (const char* rule : {"log.bound", "log.rename", "write:path=.tmp:errno=ENOSPC", "fsync:path=.tmp",
                           "open:path=.tmp", "rename:path=cairn.log"}) {
    SCOPED_TRACE(rule);
    {
      const Faults faults(rule);
      RunLog(root_.path()).append(save(10), &lease_);
    }
    EXPECT_EQ(calls(), ++before);
    EXPECT_GT(fs::file_size(path()), root::kRunLogBoundBytes);
    EXPECT_FALSE(has_temporary());
    EXPECT_EQ(warnings_, ++expected);
  }
  log_.append(save(11), &lease_);
  EXPECT_EQ(calls(), before + 1);
  EXPECT_LT(fs::file_size(path()), root::kRunLogBoundBytes);
}

TEST_F(RunLogOfRoot, ASaverThatLostTheLeaseLeavesTheLogAlone) {
  const std::uint64_t before = fill();
  write_file(root_ / ".cairn" / "epoch-99", read_file(root_ / ".cairn" / "epoch-1"));
  log_.append(save(10), &lease_);
  EXPECT_GT(fs::file_size(path()), root::kRunLogBoundBytes);
  EXPECT_EQ(calls(), before + 1);
  EXPECT_FALSE(has_temporary());
}

TEST_F(RunLogOfRoot, LoadersLoseNoLineWhileItIsMadeSmaller) {
  constexpr int kLoaders = 3;
  constexpr int kLines = 150;
  const std::uint64_t before = fill();
  std::vector<std::thread> loaders;
  for (int i = 0; i < kLoaders; ++i) {
    loaders.emplace_back([&] {
      RunLog log(root_.path());
      for (std::uint64_t step = 0; step < kLines; ++step) log.append(load(step));
    });
  }
  constexpr int kSaves = 20;
  for (std::uint64_t step = 1; step <= kSaves; ++step) log_.append(save(step), &lease_);
  for (std::thread& loader : loaders) loader.join();
  EXPECT_EQ(calls(), before + std::uint64_t{kLoaders} * kLines + kSaves);
}

TEST_F(RunLogOfRoot, ALineTakesLessThanAMillisecond) {
  double fastest_s = 1;
  for (int batch = 0; batch < 10; ++batch) {
    constexpr int kLines = 20;
    const auto start = std::chrono::steady_clock::now();
    for (std::uint64_t step = 0; step < kLines; ++step) log_.append(save(step), &lease_);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    fastest_s = std::min(fastest_s, seconds.count() / kLines);
  }
  EXPECT_LT(fastest_s, 1e-3);
}

}  // namespace
}  // namespace cairn::test
