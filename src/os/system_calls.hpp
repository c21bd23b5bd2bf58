// What stands around every system call on files: fault hooks and errors, a record of what was done, and who hears that
// work moves on.
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

// What was done to files, by whom and when: for tests of the order in which a save becomes durable.
//
// Every operation that a fault rule can name (fault.hpp) and that succeeded is recorded where its hook is, with the
// same name and path; engines record what MPI-IO and io_uring moved for them. Off, it costs one relaxed atomic load.

struct Operation {
  std::string name;
  std::filesystem::path path;  ///< of a rename or an exchange: the target
  int rank = 0;                ///< as for fault rules
  /// CLOCK_MONOTONIC, which all processes of a machine share. Of a write by io_uring both are the time when it was
  /// complete.
  std::int64_t begin_ns = 0;
  std::int64_t end_ns = 0;
};

/// Records the operations of all threads of this process while it lives. One at a time.
class Recording {
 public:
  Recording();
  ~Recording();
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;

  /// In the order in which they ended; the next call gives what came after.
  std::vector<Operation> take();
};

namespace internal {
inline std::atomic<bool> is_recording{false};
std::int64_t record_clock_ns();
void add_record(std::string_view name, const std::filesystem::path& path, std::int64_t begin_ns);
}  // namespace internal

/// Before an operation: what record() wants to know of it.
inline std::int64_t begin_record() {
  return internal::is_recording.load(std::memory_order_relaxed) ? internal::record_clock_ns() : 0;
}

/// After an operation that succeeded.
inline void record(std::string_view name, const std::filesystem::path& path, std::int64_t begin_ns) {
  if (begin_ns != 0) internal::add_record(name, path, begin_ns);
}

// Who wants to know that work on files moves on: ranks that wait for this one (comm/communicator.hpp) must not give it
// up while it writes, or removes a large old checkpoint, for longer than their limit.

namespace internal {
inline thread_local const std::function<void()>* work_observer = nullptr;
}

/// On this thread: called after every operation on a file that succeeded. Must not throw, and must outlive its use;
/// null ends that. Returns the one before.
inline const std::function<void()>* set_work_observer(const std::function<void()>* observer) {
  const auto* const before = internal::work_observer;
  internal::work_observer = observer;
  return before;
}

inline void work_moved() {
  if (internal::work_observer != nullptr) (*internal::work_observer)();
}

}  // namespace cairn::os

namespace cairn::os::internal {

// System calls of this layer: fault hooks before, one-line Errors after.

/// strerror, from any thread.
std::string error_text(int error);

/// Throws Error "<action> '<path>' failed: <strerror>"; kNotFound for ENOENT when `missing` says so, else kIo.
enum class Missing { kIsIo, kIsNotFound };
[[noreturn]] void throw_system_error(std::string_view action, const std::filesystem::path& path, int error,
                                     Missing missing = Missing::kIsIo);

/// errno of the fault that is due for the operation, 0 for none.
int fault_error(std::string_view operation, const std::filesystem::path& path);

/// The errno says that this file system, or this kernel, cannot do such a thing at all; not that it failed now.
bool is_unsupported(int error);

/// Makes the call (returning -1 with errno on failure) until it is not interrupted. Returns 0 or the errno.
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

}  // namespace cairn::os::internal
