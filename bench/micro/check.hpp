// Each benchmark checks its result once, before or after it is timed: times of wrong work have no value.
#pragma once

#include <string>

#include "cairn/error.hpp"

namespace cairn::micro {

/// Ends the program with an error unless the condition holds.
inline void require(bool condition, const std::string& what) {
  if (!condition) throw Error(ErrorKind::kInternal, "benchmark: " + what);
}

}  // namespace cairn::micro
