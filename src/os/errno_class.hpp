// Classes of errno: the one list by which Cairn tells a damaged file from a temporary failure.
//
// Cairn may skip or replace a damaged file, but not a file that cannot be read at the moment. Confusing the two could
// cost a run its newest checkpoint.
#pragma once

#include "cairn/error.hpp"

namespace cairn::os {

enum class ErrnoClass {
  kShortage,  ///< this process or the machine has no memory or descriptors left, whatever the file's state
  kMayPass,   ///< the same call may succeed later without a change to the file
  kOfFile,    ///< the file is missing, damaged, or of the wrong kind; also every errno that is not listed
};

/// Pure. 0 (no system call failed) is kOfFile.
ErrnoClass class_of(int error);

inline ErrnoClass class_of(const Error& error) { return class_of(error.system_error()); }

inline bool is_shortage(const Error& error) { return class_of(error) == ErrnoClass::kShortage; }

}  // namespace cairn::os
