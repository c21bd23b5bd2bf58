// Errors of which Cairn is the cause: something in its own code did not hold.
#pragma once

#include <source_location>
#include <string_view>

#include "cairn/error.hpp"

namespace cairn::base {

/// Error(kInternal) with `text`, the place in the sources, and the rank where it is known: "... (a bug in Cairn, at
/// plan/runs.cpp:40 on rank 3)".
Error internal_error(std::string_view text, std::source_location place = std::source_location::current());

}  // namespace cairn::base
