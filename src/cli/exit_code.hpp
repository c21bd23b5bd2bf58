// Exit codes of the program: the same on every rank.
#pragma once

#include "cairn/error.hpp"

namespace cairn::cli {

inline constexpr int kExitGood = 0;
inline constexpr int kExitFailed = 1;  ///< the checkpoint or the work failed, or two checkpoints differ
inline constexpr int kExitUsage = 2;   ///< the command line was wrong; nothing was done

/// kExitUsage for ErrorKind::kUsage, kExitFailed for every other kind.
int exit_code_of(ErrorKind kind);

}  // namespace cairn::cli
