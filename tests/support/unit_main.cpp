// main of a test program without MPI: runs all tests, reports skipped tests, and fails if no test was run.
#include <gtest/gtest.h>

#include <cstdio>
#include <string>

#include "environment.hpp"
#include "skip_report.hpp"

int main(int argc, char** argv) {
  cairn::test::set_missing_places();
  testing::InitGoogleTest(&argc, argv);
  const int verdict = RUN_ALL_TESTS();
  if (testing::GTEST_FLAG(list_tests)) {
    return verdict;
  }
  for (const std::string& line : cairn::test::skipped_tests()) {
    std::puts(line.c_str());
  }
  return cairn::test::ran_some_tests() ? verdict : 1;
}
