// Wrappers for system calls on files: fault hooks, errors, a record of operations, and observers of progress.
#pragma once

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "cairn/error.hpp"
#include "os/fault.hpp"

namespace cairn::os {

// A record of file operations, with rank and time: for tests of the order in which a save becomes durable.
//
// Successful file operations that a fault rule can name (fault.hpp) are recorded with the same name and path, except
// stat, close and reads by read_direct(). Transfers by MPI-IO and io_uring are recorded, too. While recording is off, a
// hook costs one relaxed atomic load.

struct Operation {
  std::string name;
  std::filesystem::path path;  ///< the target, for a rename or an exchange
  int rank = 0;                ///< as in fault rules
  /// CLOCK_MONOTONIC, which all processes of a machine share. For a transfer by io_uring, begin and end are the
  /// time of its completion.
  std::int64_t begin_ns = 0;
  std::int64_t end_ns = 0;
};

/// While this object lives, records the operations of all threads of this process. Only one object at a time.
class Recording {
 public:
  Recording();
  ~Recording();
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;

  /// The operations since the last call, in the order in which they ended.
  std::vector<Operation> take();
};

namespace internal {
inline std::atomic<bool> is_recording{false};
std::int64_t record_clock_ns();
void add_record(std::string_view name, const std::filesystem::path& path, std::int64_t begin_ns);
}  // namespace internal

/// Call before an operation; the result is for record().
inline std::int64_t begin_record() {
  return internal::is_recording.load(std::memory_order_relaxed) ? internal::record_clock_ns() : 0;
}

/// Call after an operation that succeeded.
inline void record(std::string_view name, const std::filesystem::path& path, std::int64_t begin_ns) {
  if (begin_ns != 0) internal::add_record(name, path, begin_ns);
}

// Observers of progress on files: ranks that wait for this one (comm/communicator.hpp) must not give up while this rank
// writes, or removes a large old checkpoint, for longer than their limit.

namespace internal {
inline thread_local const std::function<void()>* work_observer = nullptr;
}

/// Sets the function that this thread calls after successful operations on files. The function must not throw,
/// and must outlive its use; null removes it. Returns the previous function.
inline const std::function<void()>* set_work_observer(const std::function<void()>* observer) {
  const auto* const before = internal::work_observer;
  internal::work_observer = observer;
  return before;
}

inline void work_moved() {
  if (internal::work_observer != nullptr) (*internal::work_observer)();
}

// System calls of this layer, with fault hooks before and one-line Errors after the call.

/// As strerror(), but thread-safe.
std::string error_text(int error);

/// Throws Error "<action> '<path>' failed: <strerror>"; kNotFound for ENOENT with kIsNotFound, otherwise kIo.
enum class Missing { kIsIo, kIsNotFound };
[[noreturn]] void throw_system_error(std::string_view action, const std::filesystem::path& path, int error,
                                     Missing missing = Missing::kIsIo);

/// errno of the fault that is due for the operation, or 0.
int fault_error(std::string_view operation, const std::filesystem::path& path);

/// Whether the errno means that this file system or kernel does not support the operation at all.
bool is_unsupported(int error);

/// Repeats the call (which returns -1 with errno on failure) while it fails with EINTR. Returns 0 or the errno.
template <class Call>
int call_again(Call call) {
  for (;;) {
    if (call() >= 0) return 0;
    if (errno != EINTR) return errno;
  }
}

/// As call_again(); the fault hook of `operation` comes before each attempt.
template <class Call>
int call_with_faults(std::string_view operation, const std::filesystem::path& path, Call call) {
  for (;;) {
    const auto fault = check_fault(operation, path);
    int error = fault ? fault->error : 0;
    const std::int64_t begin_ns = begin_record();
    if ((error == 0 || fault->is_done) && call() < 0) error = errno;
    if (error == 0) {
      record(operation, path, begin_ns);
      work_moved();
    }
    if (error != EINTR) return error;
  }
}

}  // namespace cairn::os
