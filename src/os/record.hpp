// What was done to files, by whom and when: for tests of the order in which a save becomes durable.
//
// Every operation that a fault rule can name (fault.hpp) and that succeeded is recorded where its hook is, with the same
// name and path; engines record what MPI-IO and io_uring moved for them. Off, it costs one relaxed atomic load.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace cairn::os {

struct Operation {
  std::string name;
  std::filesystem::path path;  ///< of a rename or an exchange: the target
  int rank = 0;                ///< as for fault rules
  /// CLOCK_MONOTONIC, which all processes of a machine share. Of a write by io_uring both are the time when it was complete.
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

}  // namespace cairn::os
