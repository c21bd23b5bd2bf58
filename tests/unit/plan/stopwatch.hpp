// Processor time of this process: the cost of a step, independent of the machine's load.
#pragma once

#include <ctime>

namespace cairn::plan_test {

class Stopwatch {
 public:
  /// Milliseconds since the start or the last call.
  double milliseconds() {
    const std::clock_t now = std::clock();
    const double took = 1e3 * static_cast<double>(now - start_) / CLOCKS_PER_SEC;
    start_ = now;
    return took;
  }

 private:
  std::clock_t start_ = std::clock();
};

/// A limit in milliseconds of processor time: `optimised` for an optimised build, ten times that under a sanitizer,
/// whose builds take two to eight times longer here.
constexpr double limit_ms(double optimised) {
#if defined(CAIRN_ADDRESS_SANITIZER) || defined(CAIRN_THREAD_SANITIZER)
  return 10 * optimised;
#else
  return optimised;
#endif
}

}  // namespace cairn::plan_test
