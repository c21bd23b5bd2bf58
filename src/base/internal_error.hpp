// Errors that bugs in Cairn cause: an assumption of its code did not hold.
#pragma once

#include <string_view>

#include "cairn/error.hpp"

namespace cairn::base {

/// Error(kInternal) with `text`, the place in the sources, and the rank if it is known: "... (a bug in Cairn, at
/// plan/runs.cpp:40 on rank 3)".
Error internal_error(std::string_view text, const char* path = __builtin_FILE(), int line = __builtin_LINE());

}  // namespace cairn::base
