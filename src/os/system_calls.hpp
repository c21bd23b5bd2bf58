// Wrappers for system calls on files: fault hooks, errors, and observers of progress.
#pragma once

#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

#include "cairn/error.hpp"
#include "os/fault.hpp"
#include "os/operation_record.hpp"

namespace cairn::os {

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
