#include "directory/lease_folder.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <span>
#include <string_view>
#include <thread>
#include <utility>

#include "base/log.hpp"
#include "base/units.hpp"
#include "cairn/error.hpp"
#include "os/file.hpp"

namespace cairn::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kEpochPrefix = "epoch-";
constexpr std::string_view kLookPrefix = "look.";
/// Epochs that stay for people to read: who had the root before.
constexpr std::uint64_t kKeptEpochs = 16;

std::string text_of(const char* variable) {
  const char* text = std::getenv(variable);
  return text == nullptr ? "" : text;
}

std::uint64_t number_of(std::string_view digits) {
  std::uint64_t value = 0;
  const auto [end, status] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  return status == std::errc() && end == digits.data() + digits.size() ? value : 0;
}

/// 0 for other names.
std::uint64_t epoch_of(std::string_view name) {
  if (!name.starts_with(kEpochPrefix)) return 0;
  const std::uint64_t epoch = number_of(name.substr(kEpochPrefix.size()));
  return name == fmt::format("{}{}", kEpochPrefix, epoch) ? epoch : 0;
}

/// All that can be read, up to a byte more than a record.
std::string read_record(const fs::path& path) {
  const os::File file(path, os::OpenMode::kRead);
  std::string text(std::min<std::uint64_t>(file.size_bytes(), kLeaseRecordBytes + 1), '\0');
  file.read_at(std::as_writable_bytes(std::span(text.data(), text.size())), 0);
  return text;
}

}  // namespace

LeaseWish own_wish(const std::optional<double>& wait_seconds) {
  LeaseWish wish;
  wish.process = os::this_process();
  wish.job_id = text_of("SLURM_JOB_ID");
  wish.restarts = number_of(text_of("SLURM_RESTART_COUNT"));
  if (wait_seconds) {
    constexpr double kLongestWait = 1e9;
    if (!(*wait_seconds >= 0 && *wait_seconds <= kLongestWait)) {
      throw Error(ErrorKind::kUsage, fmt::format("cannot wait {} s for another saver", *wait_seconds));
    }
    wish.wait = std::chrono::duration_cast<LeaseTime>(std::chrono::duration<double>(*wait_seconds));
  }
  return wish;
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
  LeaseSighting sighting;
  sighting.epoch = highest_epoch();
  if (sighting.epoch == 0) return sighting;
  const fs::path file = path_of(sighting.epoch);
  try {
    sighting.text = read_record(file);
    if (const auto record = decode_lease(sighting.text); record && !record->is_released) {
      sighting.is_proven_dead = is_proven_dead(*record, surroundings_of(*record, file));
    }
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kNotFound) throw;  // else it was removed just now: the next look finds another one
  }
  return sighting;
}

Surroundings LeaseFolder::surroundings_of(const LeaseRecord& record, const fs::path& file) const {
  Surroundings found;
  found.observer = process_;
  found.is_local = os::file_system_of(path_).is_local();
  const os::ProcessName& holder = record.holder.process;
  // Asked only where the answer proves something: the server of a network file system would have to be asked, too.
  if (record.is_locked && found.is_local) {
    found.has_lock = static_cast<bool>(os::File(file, os::OpenMode::kRead).try_lock());
  }
  if (holder.boot_id == process_.boot_id) found.life = os::life_of(holder.pid, holder.start_time);
  return found;
}

std::string LeaseFolder::name_holder(std::uint64_t epoch) const {
  constexpr int kTries = 20;  // who has created the file may not have written it yet
  for (int n = 0; n < kTries; ++n) {
    try {
      if (const auto record = decode_lease(read_record(path_of(epoch)))) return describe(record->holder);
    } catch (const Error&) {
      break;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return fmt::format("its record, '{}', is not readable", base::printable(path_of(epoch).string(), 1000));
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
    base::log_debug(error.what());  // the next saver clears them
  }
}

}  // namespace cairn::checkpoint
