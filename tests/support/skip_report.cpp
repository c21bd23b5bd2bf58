#include "skip_report.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <string>

namespace cairn::test {

namespace {

std::string skip_reason(const testing::TestResult& result) {
  for (int i = 0; i < result.total_part_count(); ++i) {
    if (result.GetTestPartResult(i).skipped()) {
      std::string reason = result.GetTestPartResult(i).message();
      std::replace(reason.begin(), reason.end(), '\n', ' ');
      return reason;
    }
  }
  return "no reason given";
}

}  // namespace

std::vector<std::string> skipped_tests(const std::string& where) {
  std::vector<std::string> lines;
  const testing::UnitTest& unit = *testing::UnitTest::GetInstance();
  for (int s = 0; s < unit.total_test_suite_count(); ++s) {
    const testing::TestSuite& suite = *unit.GetTestSuite(s);
    for (int t = 0; t < suite.total_test_count(); ++t) {
      const testing::TestInfo& test = *suite.GetTestInfo(t);
      if (test.result()->Skipped()) {
        lines.push_back("[cairn] skipped " + std::string(suite.name()) + "." + test.name() + where + ": " +
                        skip_reason(*test.result()));
      }
    }
  }
  return lines;
}

bool ran_some_tests() {
  if (testing::UnitTest::GetInstance()->test_to_run_count() > 0) {
    return true;
  }
  std::fprintf(stderr, "no test was run: the program holds none, or the filter matches none\n");
  return false;
}

}  // namespace cairn::test
