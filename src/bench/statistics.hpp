// Minimum, median and maximum of repeats. Pure.
#pragma once

#include <vector>

namespace cairn::bench {

/// All three are 0 without values. The median of an even number of values is the mean of the two in the middle.
struct Summary {
  double min = 0;
  double median = 0;
  double max = 0;
  std::vector<double> values;  ///< in the order of measurement
};

Summary summarise(std::vector<double> values);

}  // namespace cairn::bench
