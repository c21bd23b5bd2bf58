// Signals that are counted, and handlers that a program had set before.
#include <gtest/gtest.h>
#include <signal.h>

#include <array>
#include <optional>

#include "expect_error.hpp"
#include "life/signals.hpp"

namespace cairn::life {
namespace {

volatile sig_atomic_t before_called = 0;
volatile sig_atomic_t full_called = 0;

/// Restores what the signals do at the end of a test.
class Signals : public testing::Test {
 protected:
  Signals() {
    for (std::size_t i = 0; i < kUsed.size(); ++i) ::sigaction(kUsed[i], nullptr, &before_[i]);
    before_called = 0;
    full_called = 0;
  }
  ~Signals() override {
    for (std::size_t i = 0; i < kUsed.size(); ++i) ::sigaction(kUsed[i], &before_[i], nullptr);
  }
  static constexpr std::array kUsed = {SIGUSR1, SIGUSR2, SIGTERM};

 private:
  std::array<struct sigaction, 3> before_{};
};

TEST_F(Signals, AreTakenOnceAndNeverLost) {
  const std::array wanted = {SIGUSR1, SIGTERM};
  CountedSignals signals(wanted);
  EXPECT_EQ(signals.take(), 0);
  ::raise(SIGUSR1);
  EXPECT_EQ(signals.take(), SIGUSR1);
  EXPECT_EQ(signals.take(), 0);
  for (int i = 0; i < 3; ++i) ::raise(SIGTERM);  // a second one does not end the process
  EXPECT_EQ(signals.take(), SIGTERM);
  EXPECT_EQ(signals.take(), 0);
}

TEST_F(Signals, AreSeenByEveryObjectThatCountsThem) {
  const std::array wanted = {SIGUSR2};
  std::optional<CountedSignals> first(std::in_place, wanted);
  CountedSignals second(wanted);
  ::raise(SIGUSR2);
  EXPECT_EQ(first->take(), SIGUSR2);
  first.reset();
  EXPECT_EQ(second.take(), SIGUSR2);
  ::raise(SIGUSR2);
  EXPECT_EQ(second.take(), SIGUSR2) << "the first object's end leaves the signal to the second";
}

TEST_F(Signals, ThatTheProgramHandlesReachItToo) {
  ::signal(SIGUSR1, [](int) { before_called = before_called + 1; });
  struct sigaction full {};
  full.sa_flags = SA_SIGINFO;
  full.sa_sigaction = [](int, siginfo_t* info, void*) { full_called = info != nullptr ? full_called + 1 : 100; };
  ::sigaction(SIGUSR2, &full, nullptr);
  {
    const std::array wanted = {SIGUSR1, SIGUSR2};
    CountedSignals signals(wanted);
    ::raise(SIGUSR1);
    ::raise(SIGUSR2);
    EXPECT_EQ(signals.take(), SIGUSR2);
  }
  ::raise(SIGUSR1);
  EXPECT_EQ(before_called, 2);
  EXPECT_EQ(full_called, 1);
}

TEST_F(Signals, KeepAHandlerThatTheProgramSetLater) {
  {
    const std::array wanted = {SIGUSR1};
    const CountedSignals signals(wanted);
    ::signal(SIGUSR1, [](int) { before_called = before_called + 1; });
  }
  ::raise(SIGUSR1);
  EXPECT_EQ(before_called, 1);
}

TEST_F(Signals, ThatCannotBeCaughtAreRefused) {
  for (const int signal : {0, -1, 65, 1000}) {
    test::expect_error(ErrorKind::kUsage,
                       [&] {
                         CountedSignals(std::array{SIGUSR1, signal});
                       },
                       {std::to_string(signal) + " is not the number of a signal"});
  }
  test::expect_error(ErrorKind::kUsage, [] { CountedSignals(std::array{SIGKILL}); }, {"signal 9 cannot be caught"});
  struct sigaction now {};
  ::sigaction(SIGUSR1, nullptr, &now);
  EXPECT_EQ(now.sa_handler, SIG_DFL) << "what was caught before the error is released";
}

}  // namespace
}  // namespace cairn::life
