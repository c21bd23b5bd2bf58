#include "root/run_log.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <set>
#include <utility>

#include "base/bytes.hpp"
#include "base/log.hpp"
#include "base/version.hpp"
#include "cairn/error.hpp"
#include "format/limits.hpp"
#include "os/fault.hpp"
#include "os/file.hpp"
#include "os/line_file.hpp"
#include "root/lease_folder.hpp"
#include "root/root.hpp"

namespace cairn::root {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kTemporaryPrefix = "log.";
constexpr std::string_view kTemporarySuffix = ".tmp";

fs::path temporary_log(const fs::path& root, const std::string& nonce) {
  return root / kLeaseDirectory / fmt::format("{}{}{}", kTemporaryPrefix, nonce, kTemporarySuffix);
}

void remove_left_logs(const fs::path& root) {
  const fs::path folder = root / kLeaseDirectory;
  for (const auto& entry : os::list_directory(folder)) {
    if (entry.name.starts_with(kTemporaryPrefix) && entry.name.ends_with(kTemporarySuffix)) {
      os::remove_tree(folder / entry.name);
    }
  }
}

/// The steps that have a directory in the root.
std::set<std::uint64_t> steps_in(const fs::path& root) {
  std::set<std::uint64_t> steps;
  for (const auto& entry : os::list_directory(root)) {
    const auto name = parse_root_name(entry.name);
    if (name && name->kind == RootName::Kind::kCheckpoint) steps.insert(name->step);
  }
  return steps;
}

/// The offset from which a reader takes a log of this size.
std::uint64_t begin_of(std::uint64_t size_bytes) {
  return size_bytes - std::min<std::uint64_t>(size_bytes, format::limits::kRunLogBytes);
}

bool is_refusal_to_write(int error) { return error == EROFS || error == EACCES || error == EPERM; }

}  // namespace

void RunLog::append(format::LogCall call, Lease* lease) noexcept {
  try {
    append_and_bound(call, lease);
  } catch (const Error& error) {
    if (call.what == format::kLogSave || !is_refusal_to_write(error.system_error())) say(call, error.what());
  } catch (const std::exception& error) {
    say(call, error.what());
  }
}

void RunLog::say(const format::LogCall& call, const char* problem) {
  if (call.outcome != format::kLogGood || has_failed_.exchange(true)) return;
  try {
    base::log_warning(
        fmt::format("the log of '{}' could not be kept: {}; calls go on without it", os::shown(root_), problem));
  } catch (const std::exception&) {  // no memory for a warning
  }
}

void RunLog::append_and_bound(format::LogCall& call, Lease* lease) {
  if (!os::exists(root_ / kLeaseDirectory)) return;
  call.time_ms = unix_time_ms();
  call.tool = base::tool_version();
  const os::AccessScope access(access_);
  os::LineFile file(root_ / format::kRunLogFile);
  file.append(format::encode_log_line(call));
  const bool is_large = file.size_bytes() > kRunLogBoundBytes;
  file.close();
  if (is_large && lease != nullptr) bound(*lease);
}

void RunLog::bound(Lease& lease) const {
  const fs::path path = root_ / format::kRunLogFile;
  remove_left_logs(root_);
  const std::set<std::uint64_t> steps = steps_in(root_);
  os::LineFile old(path);
  os::fault_point("log.bound", path);
  const std::uint64_t size = old.size_bytes();
  const std::string text = old.from(begin_of(size));
  const std::string smaller = format::aggregate_run_log(text, [&](std::uint64_t step) { return steps.contains(step); });
  const fs::path temporary = temporary_log(root_, lease.nonce());
  try {
    os::write_new_file(temporary, base::as_bytes(smaller));
    lease.look();
    os::fault_point("log.rename", path);
    os::rename(temporary, path);
  } catch (...) {
    os::remove_tree(temporary);
    throw;
  }
  std::string tail = old.from(size);
  while (!tail.empty() && tail.back() == '\n') tail.pop_back();
  if (!tail.empty()) os::LineFile(path).append(tail);
}

std::int64_t unix_time_ms() {
  std::timespec now{};
  std::timespec_get(&now, TIME_UTC);
  return static_cast<std::int64_t>(now.tv_sec) * 1000 + now.tv_nsec / 1'000'000;
}

format::RunLog read_end_of_log(const fs::path& root, std::uint64_t most_bytes) {
  try {
    const os::File file(root / format::kRunLogFile, os::OpenMode::kRead);
    const std::uint64_t size = file.size_bytes();
    std::string text(std::min(size, most_bytes), '\0');
    file.read_at(std::as_writable_bytes(std::span(text.data(), text.size())), size - text.size());
    return format::parse_run_log(text);
  } catch (const Error& error) {
    base::log_debug(error.what());
    return {};
  }
}

format::RunLog read_run_log(const fs::path& root) noexcept {
  try {
    return read_end_of_log(root, format::limits::kRunLogBytes);
  } catch (const std::exception& error) {
    base::log_debug(error.what());
    return {};
  }
}

}  // namespace cairn::root
