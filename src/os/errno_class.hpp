// What an errno says of a file: the one list by which Cairn tells a damaged file from a bad moment.
//
// A file that is damaged is passed over, or may be replaced; a file that cannot be read just now is neither. Both would
// cost a run its newest checkpoint if they were taken for each other.
#pragma once

#include "cairn/error.hpp"

namespace cairn::os {

enum class ErrnoClass {
  kShortage,  ///< this process, or the machine, has no memory or descriptor left: it says nothing of any file
  kMayPass,   ///< the same call may succeed later, though nobody changes the file
  kOfFile,    ///< the file is missing, damaged, or something else than it should be; also every errno not listed
};

/// Pure. 0, where no system call failed, is kOfFile.
ErrnoClass class_of(int error);

/// Of Error::system_error().
inline ErrnoClass class_of(const Error& error) { return class_of(error.system_error()); }

inline bool is_shortage(const Error& error) { return class_of(error) == ErrnoClass::kShortage; }

}  // namespace cairn::os
