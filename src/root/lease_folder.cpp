#include "root/lease_folder.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cstdlib>
#include <span>
#include <thread>
#include <utility>

#include "base/bytes.hpp"
#include "base/digits.hpp"
#include "base/log.hpp"
#include "base/text.hpp"
#include "cairn/error.hpp"
#include "format/limits.hpp"
#include "os/clock.hpp"
#include "os/file.hpp"

namespace cairn::root {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kEpochPrefix = "epoch-";
constexpr std::string_view kLookPrefix = "look.";
/// Number of former epochs that are kept, so that people can see the former holders.
constexpr std::uint64_t kKeptEpochs = 16;

std::string text_of(const char* variable) {
  const char* text = std::getenv(variable);
  return text == nullptr ? "" : text;
}

std::uint64_t number_of(std::string_view digits) { return base::number_in<std::uint64_t>(digits).value_or(0); }

/// The epoch in a file's name; 0 for other names.
std::uint64_t epoch_of(std::string_view name) {
  if (!name.starts_with(kEpochPrefix)) return 0;
  const std::uint64_t epoch = number_of(name.substr(kEpochPrefix.size()));
  if (epoch > format::limits::kEpoch) return 0;  // not made by a saver, and would leave no higher epoch
  return name == fmt::format("{}{}", kEpochPrefix, epoch) ? epoch : 0;
}

/// Reads at most one byte more than a record.
std::string read_record(const fs::path& path) {
  const os::File file(path, os::OpenMode::kRead);
  std::string text(std::min<std::uint64_t>(file.size_bytes(), kLeaseRecordBytes + 1), '\0');
  file.read_at(std::as_writable_bytes(std::span(text.data(), text.size())), 0);
  return text;
}

}  // namespace

LeaseRequest own_request(const std::optional<double>& wait_seconds) {
  LeaseRequest request;
  request.process = os::this_process();
  request.job_id = text_of("SLURM_JOB_ID");
  request.restarts = number_of(text_of("SLURM_RESTART_COUNT"));
  if (wait_seconds) {
    if (!(*wait_seconds >= 0 && *wait_seconds <= os::kLongestWaitS)) {
      throw Error(ErrorKind::kUsage,
                  fmt::format("cannot wait {} s for another saver; give Options::lease.wait_seconds from 0 to {:.0f}",
                              *wait_seconds, os::kLongestWaitS));
    }
    request.wait = std::chrono::duration_cast<LeaseTime>(std::chrono::duration<double>(*wait_seconds));
  }
  return request;
}

LeaseFolder::LeaseFolder(const fs::path& root, os::ProcessName process, std::string nonce)
    : path_(root / kLeaseDirectory), process_(std::move(process)), nonce_(std::move(nonce)) {}

fs::path LeaseFolder::path_of(std::uint64_t epoch) const { return path_ / fmt::format("{}{}", kEpochPrefix, epoch); }

std::uint64_t LeaseFolder::highest_epoch() const {
  std::uint64_t highest = 0;
  if (!os::exists(path_)) return highest;
  for (const auto& entry : os::list_directory(path_)) highest = std::max(highest, epoch_of(entry.name));
  return highest;
}

void LeaseFolder::refresh() const {
  if (os::exists(path_)) os::refresh_directory(path_, fmt::format("{}{}", kLookPrefix, nonce_));
}

LeaseSighting LeaseFolder::see() const {
  const std::uint64_t epoch = highest_epoch();
  return epoch == 0 ? LeaseSighting{} : see(path_of(epoch), epoch);
}

LeaseSighting LeaseFolder::see(const fs::path& file, std::uint64_t epoch) const {
  LeaseSighting sighting;
  sighting.epoch = epoch;
  try {
    sighting.text = read_record(file);
    if (const auto record = decode_lease(sighting.text); record && !record->is_released) {
      // This saver's own former epoch, which it lost, has no holder.
      sighting.is_proven_dead =
          record->holder.nonce == nonce_ || is_proven_dead(*record, surroundings_of(*record, file));
    }
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kNotFound) throw;  // removed just now: the next look finds another epoch
  }
  return sighting;
}

Surroundings LeaseFolder::surroundings_of(const LeaseRecord& record, const fs::path& file) const {
  Surroundings found;
  found.observer = process_;
  found.is_here = LiveSaver::is_there(record.holder.nonce);
  found.is_local = os::file_system_of(path_).is_local();
  const os::ProcessName& holder = record.holder.process;
  // The lock is tried only if it proves something: on a network file system that costs a request to the server.
  if (record.is_locked && found.is_local) {
    found.has_lock = static_cast<bool>(os::File(file, os::OpenMode::kRead).try_lock());
  }
  if (holder.boot_id == process_.boot_id) found.life = os::life_of(holder.pid, holder.start_time);
  return found;
}

bool LeaseFolder::is_of_another(std::uint64_t epoch) const {
  const auto record = decode_lease(read_record(path_of(epoch)));
  return record && record->holder.nonce != nonce_;
}

std::string LeaseFolder::name_holder(std::uint64_t epoch) const {
  constexpr int kTries = 20;  // the epoch's creator may not have written the file yet
  for (int n = 0; n < kTries; ++n) {
    try {
      if (const auto record = decode_lease(read_record(path_of(epoch)))) return describe(record->holder);
    } catch (const Error&) {
      break;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return fmt::format("its record, '{}', is not readable", os::shown(path_of(epoch)));
}

void LeaseFolder::clear_old(std::uint64_t own) const noexcept {
  try {
    const std::string own_look = fmt::format("{}{}", kLookPrefix, nonce_);
    for (const auto& entry : os::list_directory(path_)) {
      const std::uint64_t old = epoch_of(entry.name);
      const bool is_old_look = entry.name.starts_with(kLookPrefix) && entry.name != own_look;
      if ((old != 0 && old + kKeptEpochs < own) || is_old_look) os::remove_tree(path_ / entry.name);
    }
  } catch (const std::exception& error) {
    base::log_debug(error.what());  // the next saver tries again
  }
}

}  // namespace cairn::root
