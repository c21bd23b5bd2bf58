#include "bench/statistics.hpp"

#include <algorithm>

namespace cairn::bench {

Summary summarise(std::vector<double> values) {
  Summary out;
  out.values = std::move(values);
  if (out.values.empty()) return out;
  std::vector<double> sorted = out.values;
  std::sort(sorted.begin(), sorted.end());
  const std::size_t half = sorted.size() / 2;
  out.min = sorted.front();
  out.max = sorted.back();
  out.median = sorted.size() % 2 == 1 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
  return out;
}

}  // namespace cairn::bench
