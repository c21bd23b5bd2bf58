// The callback that hears of the end of an asynchronous save (AsyncOptions::on_done).
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <mpi.h>

#include <chrono>
#include <cstdint>
#include <mutex>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "cairn/checkpoint.hpp"
#include "cairn/log.hpp"
#include "faults.hpp"
#include "sharded_state.hpp"
#include "shared_temp_dir.hpp"
#include "world.hpp"

namespace cairn::test {
namespace {

using testing::HasSubstr;

/// The ends of saves that a callback heard of, and the thread of the last.
class Ends {
 public:
  void add(const SaveEnd& end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));  // SaveTicket::wait() must wait for this
    const std::lock_guard lock(mutex_);
    text_ += std::to_string(end.step) + (end.was_cancelled ? " cancelled" : "") +
             (end.report != nullptr ? " saved " + std::to_string(end.report->bytes) : "") +
             (end.error != nullptr ? std::string(" failed: ") + end.error->what() : "") + "\n";
    thread_ = std::this_thread::get_id();
  }
  std::string take() {
    const std::lock_guard lock(mutex_);
    return std::exchange(text_, {});
  }
  bool was_called_here() {
    const std::lock_guard lock(mutex_);
    return thread_ == std::this_thread::get_id();
  }

 private:
  std::mutex mutex_;
  std::string text_;
  std::thread::id thread_;
};

std::string message_of(SaveTicket& ticket) {
  try {
    ticket.wait();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

/// The callback is set on rank 0 only.
class AsyncEnd : public testing::Test {
 protected:
  AsyncEnd() {
    state_.fill(1);
    if (world_.rank == 0) options_.async.on_done = [this](const SaveEnd& end) { ends_.add(end); };
  }
  [[nodiscard]] Checkpointer make() const { return {MPI_COMM_WORLD, root_.path(), options_}; }
  void expect_heard(const std::string& line) { EXPECT_EQ(ends_.take(), world_.rank == 0 ? line : ""); }

  const World world_;
  SharedTempDir root_;
  Ends ends_;
  RankState state_{small_state(), Cut::kRows, world_.rank, world_.ranks};
  Options options_ = options_for_small_state("posix");
};

TEST_F(AsyncEnd, IsHeardOnceForEachSaveBeforeWaitReturns) {
  Checkpointer checkpointer = make();
  const Report report = checkpointer.save_async(1, state_.sources()).wait();
  expect_heard("1 saved " + std::to_string(report.bytes) + "\n");
  EXPECT_FALSE(ends_.was_called_here());
  {
    const Faults full_disk("write:path=.partial:errno=ENOSPC:after=1");
    SaveTicket ticket = checkpointer.save_async(2, state_.sources());
    const std::string message = message_of(ticket);
    EXPECT_THAT(message, HasSubstr("No space left"));
    expect_heard("2 failed: " + message + "\n");
  }
  auto sources = state_.sources();
  sources.front().shape = {1};
  EXPECT_THROW(static_cast<void>(checkpointer.save_async(3, sources)), Error) << "no save, and no end";
  checkpointer.save(3, state_.sources());
  expect_heard("");
  const SaveTicket last = checkpointer.save_async(4, state_.sources());
  checkpointer = make();  // the object before ends, after the callback
  expect_heard("4 saved " + std::to_string(report.bytes) + "\n");
}

TEST_F(AsyncEnd, ACancelledSaveIsHeardAndASkippedOneIsNot) {
  options_.async.when_busy = WhenBusy::kSkip;
  options_.async.max_bytes_per_s = 1000;  // the save takes minutes unless it is cancelled
  Checkpointer checkpointer = make();
  SaveTicket ticket = checkpointer.save_async(1, state_.sources());
  EXPECT_TRUE(checkpointer.save_async(2, state_.sources()).was_skipped());
  EXPECT_TRUE(ticket.cancel());
  const std::string message = message_of(ticket);
  EXPECT_THAT(message, HasSubstr("cancelled"));
  expect_heard("1 cancelled failed: " + message + "\n");
}

TEST_F(AsyncEnd, ASynchronousSaveTellsItOnTheThreadOfTheCall) {
  options_.engine.name = "mpiio";
  Checkpointer checkpointer = make();
  SaveTicket ticket = checkpointer.save_async(1, state_.sources());
  EXPECT_EQ(ends_.was_called_here(), world_.rank == 0);
  expect_heard("1 saved " + std::to_string(ticket.wait().bytes) + "\n");
}

TEST_F(AsyncEnd, WhatTheCallbackThrowsIsLoggedAndChangesNothing) {
  std::mutex mutex;
  std::string lines;
  set_log_sink([&](LogLevel level, std::string_view line) {
    const std::lock_guard lock(mutex);
    if (level == LogLevel::kError) lines += std::string(line) + "\n";
  });
  options_.async.on_done = [](const SaveEnd& end) {
    if (end.step == 2) throw 2;
    throw std::runtime_error("no\nidea");
  };
  {
    Checkpointer checkpointer = make();
    for (const std::uint64_t step : {1, 2}) checkpointer.save_async(step, state_.sources()).wait();
    EXPECT_EQ(checkpointer.latest(), 2U);
  }
  set_log_sink({});
  EXPECT_EQ(lines,
            "the callback AsyncOptions::on_done threw after the save of step 1: no\\x0aidea\n"
            "the callback AsyncOptions::on_done threw after the save of step 2: an exception of unknown type\n");
}

}  // namespace
}  // namespace cairn::test
