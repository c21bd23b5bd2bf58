#include "os/system_error.hpp"

#include <fmt/core.h>

#include <array>
#include <cstring>

#include "base/text.hpp"
#include "os/fault.hpp"

namespace cairn::os::internal {

std::string error_text(int error) {
  std::array<char, 256> buffer{};
  return ::strerror_r(error, buffer.data(), buffer.size());
}

void throw_system_error(std::string_view action, const std::filesystem::path& path, int error, Missing missing) {
  const bool not_found = error == ENOENT && missing == Missing::kIsNotFound;
  throw Error(not_found ? ErrorKind::kNotFound : ErrorKind::kIo,
              fmt::format("{} '{}' failed: {}", action, base::printable(path.native(), 1000), error_text(error)));
}

int fault_error(std::string_view operation, const std::filesystem::path& path) {
  const auto fault = check_fault(operation, path);
  return fault ? fault->error : 0;
}

}  // namespace cairn::os::internal
