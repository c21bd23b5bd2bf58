// Processor time of this process: what a step costs, however busy the machine is.
#pragma once

#include <ctime>

namespace cairn::plan_test {

class Stopwatch {
 public:
  /// Since the start or the last call.
  double milliseconds() {
    const std::clock_t now = std::clock();
    const double took = 1e3 * static_cast<double>(now - start_) / CLOCKS_PER_SEC;
    start_ = now;
    return took;
  }

 private:
  std::clock_t start_ = std::clock();
};

}  // namespace cairn::plan_test
