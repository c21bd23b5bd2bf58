// Limits of this process that the system enforces in odd ways: by a signal that ends the program (sizes of files), or in
// the middle of a job (open files).
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace cairn::os {

/// Soft limit of open files, for programs that are started as this one was (ulimit -n), and the hard one, up to which
/// they can raise it.
struct OpenFileLimit {
  std::uint64_t soft = 0;
  std::uint64_t hard = 0;
};

/// For a program of ours, before other threads are started: its soft limit of open files becomes the hard one, or
/// 65,536 where that is enough, and a file that grows too large is an error and no signal. Not in a library: programs
/// that use select(2) need small descriptors, and signals are theirs. Returns what it found.
OpenFileLimit meet_limits();

/// How many files this process may open besides those that it has open: what the soft limit (ulimit -n) leaves.
std::uint64_t free_descriptors();
/// Half of them, and at least `fewest`: for who opens files by turns, as others in this process open theirs meanwhile.
std::uint64_t descriptors_to_use(std::uint64_t fewest);

/// Largest size of a file of this process (ulimit -f); nothing: it has no limit.
std::optional<std::uint64_t> largest_file_bytes();

/// EFBIG where a file of this process may not be so large (ulimit -f), else 0. Asked before every call that would make a
/// file larger: the system would answer by SIGXFSZ.
int refuse_size(std::uint64_t bytes);

/// What can be done about an errno that a limit is the reason of, as the end of a message: "; raise ...". Empty for
/// others.
std::string remedy_of(int error);

}  // namespace cairn::os
