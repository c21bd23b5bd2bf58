// A signal after the work is done. tests/cli/interrupt_test.py has the endings of real commands.
#include "os/interrupt.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

namespace cairn::os {
namespace {

[[noreturn]] void end_by(int signal) {
  ::kill(::getpid(), signal);
  for (;;) ::pause();
}

TEST(Interrupt, ASignalAfterTheWorkEndsWithItsCodeAndWithoutALine) {
  const auto settle = [] {
    end_on_signals();
    settle_ending(7);
    end_by(SIGTERM);
  };
  EXPECT_EXIT(settle(), testing::ExitedWithCode(7), testing::StrEq(""));
}

TEST(Interrupt, ASignalBeforeItIsNamed) {
  const auto work = [] {
    end_on_signals();
    end_by(SIGTERM);
  };
  EXPECT_EXIT(work(), testing::ExitedWithCode(128 + SIGTERM), testing::StrEq("cairn: interrupted by SIGTERM\n"));
}

}  // namespace
}  // namespace cairn::os
