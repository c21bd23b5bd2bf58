// The past of a run from a log that was read already (cairn/history.hpp).
#pragma once

#include <filesystem>

#include "cairn/history.hpp"
#include "format/run_log.hpp"

namespace cairn::life {

/// Rank-local. The log of a root, as root::read_run_log(). Throws Error(kNotFound) if `root` is not a directory.
format::RunLog log_of(const std::filesystem::path& root);

/// Pure: cairn::history_of() for the root of this log.
RunHistory history_in(const format::RunLog& log);

}  // namespace cairn::life
