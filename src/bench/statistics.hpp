// Minimum, median and maximum of repeats. Pure.
#pragma once

#include <vector>

namespace cairn::bench {

/// All figures are 0 without values. The median of an even number of values is the mean of the middle two.
struct Summary {
  double min = 0;
  double median = 0;
  double max = 0;
  std::vector<double> values;  ///< in the order of measurement
};

Summary summarise(std::vector<double> values);

}  // namespace cairn::bench
