// Exit codes of the program `cairn`, the same on every rank. src/cli/README.md has the table for users; a test compares
// the two.
#pragma once

namespace cairn::base {

inline constexpr int kExitGood = 0;
inline constexpr int kExitFailed = 1;  ///< the checkpoint or the work failed, or two checkpoints differ
inline constexpr int kExitUsage = 2;   ///< the command line was wrong; nothing was done
inline constexpr int kExitSilent = 5;  ///< a rank made no progress for too long (comm/watchdog.hpp)

/// Added to the number of the signal that ended the program (os/interrupt.hpp).
inline constexpr int kExitSignal = 128;

}  // namespace cairn::base
