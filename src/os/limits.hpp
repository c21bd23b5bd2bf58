// Limits of this process that take effect in unusual ways: by a signal that ends the program (file sizes), or only in
// the middle of a job (open files).
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace cairn::os {

/// Soft limit of open files at the start of the program (ulimit -n), and the hard limit up to which it can be raised.
struct OpenFileLimit {
  std::uint64_t soft = 0;
  std::uint64_t hard = 0;
};

/// For our own programs, before other threads are started. Raises the soft limit of open files to the hard one, but not
/// above 65,536, and turns the signal for a file that grows too large into an error. Not for libraries: select(2) needs
/// small descriptors, and signals belong to the program. Returns the previous limits.
OpenFileLimit meet_limits();

/// The number of further files that this process may open under its soft limit (ulimit -n).
std::uint64_t free_descriptors();
/// Half of free_descriptors(), but at least `fewest`: other parts of this process may open files at the same time.
std::uint64_t descriptors_to_use(std::uint64_t fewest);

/// The largest file that this process may write (ulimit -f); nothing: no limit.
std::optional<std::uint64_t> largest_file_bytes();

/// EFBIG if this process may not write a file of this size (ulimit -f), otherwise 0. Check before every system call
/// that enlarges a file: otherwise the system may send SIGXFSZ.
int refuse_size(std::uint64_t bytes);

/// The number of kB in the line of a file of /proc that begins with `key` ("MemTotal:"), in bytes; 0: unknown.
std::uint64_t proc_bytes(const char* path, const char* key);

/// The memory of this process and of its host, and advice, as the end of a message: "; this process holds ...". Empty
/// if nothing is known.
std::string memory_note() noexcept;

/// Advice for EMFILE, ENFILE, EFBIG and EXDEV (overlayfs), as the end of a message: "; ...". Empty for any other errno.
std::string remedy_of(int error);

}  // namespace cairn::os
