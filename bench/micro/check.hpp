// Each benchmark checks its result once, before or after timing: the time of wrong results has no value.
#pragma once

#include <string>

#include "cairn/error.hpp"

namespace cairn::micro {

/// Ends the program with an error unless the condition holds.
inline void require(bool condition, const std::string& what) {
  if (!condition) throw Error(ErrorKind::kInternal, "benchmark: " + what);
}

}  // namespace cairn::micro
