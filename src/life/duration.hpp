// Durations in texts for people.
#pragma once

#include <string>

namespace cairn::life {

/// "1.2 s", "40 s", "9.0 min", "33.3 h", "12.5 days": three digits or so; 100 s, 100 min and 100 h are the largest of
/// their units.
std::string shown_duration(double seconds);

}  // namespace cairn::life
