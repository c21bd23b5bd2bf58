// A benchmark's record as text for a terminal or a job's log.
#pragma once

#include <string>

#include "bench/record.hpp"

namespace cairn::cli {

/// Lines without a newline at the end.
std::string bench_text(const bench::Record& record);

}  // namespace cairn::cli
