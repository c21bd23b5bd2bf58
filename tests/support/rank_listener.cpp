#include "rank_listener.hpp"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

namespace cairn::test {

namespace {

// The time for which a failed rank waits for the others, which may be stuck in a collective that it left.
std::chrono::seconds patience() {
  const char* text = std::getenv("CAIRN_TEST_PATIENCE_S");
  return std::chrono::seconds(text == nullptr ? 15 : std::strtol(text, nullptr, 10));
}

}  // namespace

RankListener::RankListener(MPI_Comm world, Watchdog* watchdog) : world_(world), watchdog_(watchdog) {
  MPI_Comm_rank(world_, &rank_);
}

void RankListener::OnTestStart(const testing::TestInfo& test) {
  test_ = std::string(test.test_suite_name()) + "." + test.name();
  if (watchdog_ != nullptr) {
    watchdog_->now_in(test_);
  }
}

void RankListener::OnTestPartResult(const testing::TestPartResult& result) {
  if (rank_ == 0 || result.passed()) {
    return;  // rank 0 has GoogleTest's own printer
  }
  if (result.skipped()) {
    return;  // skip_report.hpp
  }
  std::fprintf(stderr, "[rank %d] %s failed at %s:%d\n%s\n", rank_, test_.c_str(),
               result.file_name() == nullptr ? "?" : result.file_name(), result.line_number(), result.message());
  std::fflush(stderr);
}

void RankListener::OnTestEnd(const testing::TestInfo& test) {
  if (watchdog_ != nullptr) {
    watchdog_->now_in("the end of " + test_);
  }
  meet(test.result()->Failed());
}

void RankListener::meet(bool failed_here) {
  int failed = failed_here ? 1 : 0;
  int any_failed = 0;
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Iallreduce(&failed, &any_failed, 1, MPI_INT, MPI_MAX, world_, &request);
  const auto start = std::chrono::steady_clock::now();
  for (int done = 0;;) {
    MPI_Test(&request, &done, MPI_STATUS_IGNORE);
    if (done != 0) {
      break;
    }
    if (failed_here && std::chrono::steady_clock::now() - start > patience()) {
      std::fprintf(stderr, "[rank %d] failed %s alone; others are still in it after %lld s: aborting\n", rank_,
                   test_.c_str(), static_cast<long long>(patience().count()));
      std::fflush(stderr);
      MPI_Abort(world_, 1);
    }
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  if (any_failed != 0) {
    failed_somewhere_ = true;
    if (rank_ == 0 && !failed_here) {
      std::printf("[  FAILED  ] %s (on another rank)\n", test_.c_str());
      std::fflush(stdout);
    }
  }
}

}  // namespace cairn::test
