// Wrappers for system calls on files: errors, and a record of operations.
#include "os/system_calls.hpp"

#include <fmt/core.h>

#include <array>
#include <cstring>
#include <ctime>
#include <mutex>
#include <utility>

#include "os/file.hpp"
#include "os/limits.hpp"

namespace cairn::os {
namespace {

std::mutex mutex;
std::vector<Operation> operations;

}  // namespace

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

Recording::Recording() {
  take();
  internal::is_recording.store(true, std::memory_order_relaxed);
}

Recording::~Recording() {
  internal::is_recording.store(false, std::memory_order_relaxed);
  take();
}

std::vector<Operation> Recording::take() {
  const std::lock_guard lock(mutex);
  return std::exchange(operations, {});
}

std::int64_t internal::record_clock_ns() {
  std::timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return std::int64_t{1'000'000'000} * now.tv_sec + now.tv_nsec;
}

void internal::add_record(std::string_view name, const std::filesystem::path& path, std::int64_t begin_ns) {
  const std::lock_guard lock(mutex);
  operations.push_back({std::string(name), path, fault_rank(), begin_ns, record_clock_ns()});
}

}  // namespace cairn::os
