// Collects the operations of all threads.
#include "os/operation_record.hpp"

#include <ctime>
#include <mutex>
#include <utility>

#include "os/fault.hpp"

namespace cairn::os {
namespace {

std::mutex mutex;
std::vector<Operation> operations;

}  // namespace

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
