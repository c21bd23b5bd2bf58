// Chooses the unit of a duration.
#include "life/duration.hpp"

#include <fmt/core.h>

namespace cairn::life {

std::string shown_duration(double seconds) {
  constexpr double kMinute = 60;
  constexpr double kHour = 3600;
  constexpr double kDay = 86'400;
  constexpr double kMost = 100;  // of a unit
  if (seconds <= kMost) return fmt::format("{:.3g} s", seconds);
  if (seconds <= kMost * kMinute) return fmt::format("{:.1f} min", seconds / kMinute);
  if (seconds <= kMost * kHour) return fmt::format("{:.1f} h", seconds / kHour);
  return fmt::format("{:.1f} days", seconds / kDay);
}

}  // namespace cairn::life
