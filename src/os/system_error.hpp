// System calls of this layer: fault hooks before, one-line Errors after.
#pragma once

#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "cairn/error.hpp"
#include "os/record.hpp"
#include "os/work.hpp"

namespace cairn::os::internal {

/// strerror, from any thread.
std::string error_text(int error);

/// Throws Error "<action> '<path>' failed: <strerror>"; kNotFound for ENOENT when `missing` says so, else kIo.
enum class Missing { kIsIo, kIsNotFound };
[[noreturn]] void throw_system_error(std::string_view action, const std::filesystem::path& path, int error,
                                     Missing missing = Missing::kIsIo);

/// errno of the fault that is due for the operation, 0 for none.
int fault_error(std::string_view operation, const std::filesystem::path& path);

/// Makes the call (returning -1 with errno on failure) until it is not interrupted; the fault hook of `operation` comes
/// before each attempt. Returns 0 or the errno.
template <class Call>
int call_with_faults(std::string_view operation, const std::filesystem::path& path, Call call) {
  for (;;) {
    int error = fault_error(operation, path);
    const std::int64_t begin_ns = begin_record();
    if (error == 0 && call() < 0) error = errno;
    if (error == 0) {
      record(operation, path, begin_ns);
      work_moved();
    }
    if (error != EINTR) return error;
  }
}

}  // namespace cairn::os::internal
