// A GoogleTest listener for a test that runs on several ranks at once.
#pragma once

#include <gtest/gtest.h>
#include <mpi.h>

#include "watchdog.hpp"

namespace cairn::test {

/// Tells the watchdog the current test, prints failures of ranks other than 0 with the rank in front, and makes all
/// ranks meet after each test, so that a rank that failed alone is named instead of leaving the others in a collective.
class RankListener : public testing::EmptyTestEventListener {
 public:
  /// `world` is a communicator for the listener alone. `watchdog` may be null.
  RankListener(MPI_Comm world, Watchdog* watchdog);

  void OnTestStart(const testing::TestInfo& test) override;
  void OnTestPartResult(const testing::TestPartResult& result) override;
  void OnTestEnd(const testing::TestInfo& test) override;

  /// Whether a test failed on any rank.
  [[nodiscard]] bool failed_somewhere() const { return failed_somewhere_; }

 private:
  void meet(bool failed_here);

  MPI_Comm world_;
  Watchdog* watchdog_;
  int rank_ = 0;
  std::string test_;
  bool failed_somewhere_ = false;
};

}  // namespace cairn::test
