// main of a test program without MPI: runs everything, reports what was skipped, fails when there was nothing to run.
#include <gtest/gtest.h>

#include "skip_report.hpp"

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  const int verdict = RUN_ALL_TESTS();
  if (testing::GTEST_FLAG(list_tests)) {
    return verdict;
  }
  cairn::test::report_skipped_tests();
  return cairn::test::ran_some_tests() ? verdict : 1;
}
