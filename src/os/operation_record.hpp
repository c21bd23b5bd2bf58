// A record of file operations, with rank and time: for tests of the order in which a save becomes durable.
//
// Successful file operations that a fault rule can name (fault.hpp) are recorded with the same name and path, except
// stat, close and reads by read_direct(). Transfers by MPI-IO and io_uring are recorded, too. While recording is off, a
// hook costs one relaxed atomic load.
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

}  // namespace cairn::os
