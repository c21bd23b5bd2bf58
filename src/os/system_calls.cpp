// Errors of system calls on files.
#include "os/system_calls.hpp"

#include <fmt/core.h>

#include <array>
#include <cstring>

#include "os/file.hpp"
#include "os/limits.hpp"

namespace cairn::os {

std::string error_text(int error) {
  std::array<char, 256> buffer{};
  return ::strerror_r(error, buffer.data(), buffer.size());
}

void throw_system_error(std::string_view action, const std::filesystem::path& path, int error, Missing missing) {
  const bool not_found = error == ENOENT && missing == Missing::kIsNotFound;
  throw Error(not_found ? ErrorKind::kNotFound : ErrorKind::kIo,
              fmt::format("{} '{}' failed: {}{}", action, shown(path), error_text(error), remedy_of(error)),
              {error, path.native()});
}

bool is_unsupported(int error) {
  // Network file systems return their own codes (NFS: ENOTSUPP), and kernels have several codes for an operation that a
  // file system does not support.
  constexpr int kKernelUnsupported = 524;  // ENOTSUPP of the kernel (DVS, some NFS clients), which user space does not
                                           // define
  return error == EOPNOTSUPP || error == ENOSYS || error == kKernelUnsupported || error == ENOTTY || error == EINVAL;
}

int fault_error(std::string_view operation, const std::filesystem::path& path) {
  const auto fault = check_fault(operation, path);
  return fault ? fault->error : 0;
}

}  // namespace cairn::os
