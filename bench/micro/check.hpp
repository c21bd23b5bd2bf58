// Checks of results, before or after timing, since the time of wrong results has no value.
#pragma once

#include <string>

#include "cairn/error.hpp"

namespace cairn::micro {

/// Throws Error(kInternal), which ends the program, unless the condition holds.
inline void require(bool condition, const std::string& what) {
  if (!condition) throw Error(ErrorKind::kInternal, "benchmark: " + what);
}

}  // namespace cairn::micro
