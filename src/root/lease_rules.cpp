#include "root/lease_rules.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <ctime>
#include <map>
#include <mutex>
#include <set>
#include <utility>

#include "base/bytes.hpp"
#include "base/digits.hpp"
#include "base/text.hpp"
#include "cairn/error.hpp"
#include "format/crc32c.hpp"
#include "format/limits.hpp"

namespace cairn::root {
namespace {

constexpr std::string_view kFirstLine = "cairn lease 1\n";
constexpr std::string_view kChecksumKey = "crc32c ";
constexpr std::size_t kChecksumBytes = 16;  // "crc32c 89abcdef\n"
constexpr std::size_t kLongestValue = 120;

/// A line with a printable value, so that a host's name cannot begin another line.
std::string line(std::string_view key, std::string_view value) {
  return fmt::format("{} {}\n", key, base::printable(value, kLongestValue));
}
std::string line(std::string_view key, std::uint64_t value) { return fmt::format("{} {}\n", key, value); }

std::string checksum_line(std::string_view text) {
  return fmt::format("{}{:08x}\n", kChecksumKey, format::crc32c(base::as_bytes(text)));
}

/// Reads the lines between the first line and the checksum.
class Fields {
 public:
  explicit Fields(std::string_view text) {
    while (!text.empty()) {
      const std::size_t end = text.find('\n');
      const std::string_view line = text.substr(0, end);
      const std::size_t space = line.find(' ');
      if (space != std::string_view::npos) values_[std::string(line.substr(0, space))] = line.substr(space + 1);
      if (end == std::string_view::npos) break;
      text.remove_prefix(end + 1);
    }
  }
  [[nodiscard]] std::string text(const char* key) {
    const auto at = values_.find(key);
    if (at == values_.end()) {
      is_whole_ = false;
      return {};
    }
    return std::string(at->second);
  }
  [[nodiscard]] std::uint64_t number(const char* key) {
    const auto value = base::number_in<std::uint64_t>(text(key));
    is_whole_ = is_whole_ && value;
    return value.value_or(0);
  }
  [[nodiscard]] bool is_whole() const { return is_whole_; }

 private:
  std::map<std::string, std::string_view> values_;
  bool is_whole_ = true;
};

std::string utc(std::uint64_t unix_s) {
  const auto time = static_cast<std::time_t>(unix_s);
  std::tm parts{};
  if (::gmtime_r(&time, &parts) == nullptr) return "an unknown time";
  return fmt::format("{:04}-{:02}-{:02} {:02}:{:02}:{:02} UTC", parts.tm_year + 1900, parts.tm_mon + 1, parts.tm_mday,
                     parts.tm_hour, parts.tm_min, parts.tm_sec);
}

struct LiveNonces {
  std::mutex mutex;
  std::set<std::string> all;
};
/// Never destroyed: a Checkpointer may be static.
LiveNonces& live_nonces() {
  static auto* const live = new LiveNonces;
  return *live;
}

}  // namespace

std::string encode_lease(const LeaseRecord& record) {
  const Holder& holder = record.holder;
  std::string text(kFirstLine);
  text += line("sequence", record.sequence);
  text += line("state", record.is_released ? "released" : "held");
  text += line("lease_ms", record.lease_ms);
  text += line("locked", record.is_locked ? 1 : 0);
  text += line("host", holder.process.host);
  text += line("boot", holder.process.boot_id);
  text += line("pid_namespace", holder.process.pid_namespace);
  text += line("pid", holder.process.pid);
  text += line("start_time", holder.process.start_time);
  text += line("job", holder.job_id);
  text += line("restarts", holder.restarts);
  text += line("nonce", holder.nonce);
  text += line("since_s", holder.since_s);
  text.resize(kLeaseRecordBytes - kChecksumBytes - 1, ' ');
  text += '\n';
  return text + checksum_line(text);
}

std::optional<LeaseRecord> decode_lease(std::string_view text) {
  if (text.size() != kLeaseRecordBytes || !text.starts_with(kFirstLine)) return std::nullopt;
  const std::string_view body = text.substr(0, kLeaseRecordBytes - kChecksumBytes);
  if (text.substr(body.size()) != checksum_line(body)) return std::nullopt;
  Fields fields(body.substr(kFirstLine.size()));
  LeaseRecord record;
  record.sequence = fields.number("sequence");
  const std::string state = fields.text("state");
  record.is_released = state == "released";
  record.lease_ms = fields.number("lease_ms");
  record.is_locked = fields.number("locked") != 0;
  Holder& holder = record.holder;
  holder.process = {fields.text("host"), fields.text("boot"), fields.text("pid_namespace"), fields.number("pid"),
                    fields.number("start_time")};
  holder.job_id = fields.text("job");
  holder.restarts = fields.number("restarts");
  holder.nonce = fields.text("nonce");
  holder.since_s = fields.number("since_s");
  if (!fields.is_whole() || (state != "held" && state != "released")) return std::nullopt;
  return record;
}

std::string describe(const Holder& holder) {
  std::string job;
  if (!holder.job_id.empty()) {
    job = fmt::format("job {}, ", holder.job_id);
    if (holder.restarts != 0) job = fmt::format("job {} in its start {}, ", holder.job_id, holder.restarts + 1);
  }
  return fmt::format("process {} on {} ({}since {})", holder.process.pid, holder.process.host, job,
                     utc(holder.since_s));
}

bool is_same_process(const os::ProcessName& a, const os::ProcessName& b) {
  const bool is_told = !a.boot_id.empty() && !a.pid_namespace.empty() && a.start_time != 0;
  return is_told && a == b;
}

LiveSaver::LiveSaver(std::string nonce) : nonce_(std::move(nonce)) {
  LiveNonces& live = live_nonces();
  const std::lock_guard lock(live.mutex);
  live.all.insert(nonce_);
}

LiveSaver::~LiveSaver() {
  LiveNonces& live = live_nonces();
  const std::lock_guard lock(live.mutex);
  live.all.erase(nonce_);
}

bool LiveSaver::is_there(const std::string& nonce) {
  LiveNonces& live = live_nonces();
  const std::lock_guard lock(live.mutex);
  return live.all.contains(nonce);
}

bool is_proven_dead(const LeaseRecord& record, const Surroundings& surroundings) {
  const os::ProcessName& holder = record.holder.process;
  const os::ProcessName& observer = surroundings.observer;
  if (is_same_process(holder, observer)) return !surroundings.is_here;
  if (holder.boot_id.empty() || observer.boot_id.empty()) return false;
  if (holder.boot_id != observer.boot_id) {
    // True if this machine wrote the record before a reboot: the record has its name, and the file system is local. One
    // condition alone proves nothing: a local file system may be exported, and on a shared one two machines may have
    // the same name.
    constexpr std::string_view kNobodysName = "localhost";
    const bool is_same_machine = !holder.host.empty() && holder.host == observer.host && holder.host != kNobodysName;
    return surroundings.is_local && is_same_machine;
  }
  // A live holder may have a lock that this process cannot see, for example through an exported file system.
  const bool is_there = surroundings.life == os::Life::kAlive;
  if (record.is_locked && surroundings.has_lock && surroundings.is_local && !is_there) return true;
  const bool is_same_namespace = !holder.pid_namespace.empty() && holder.pid_namespace == observer.pid_namespace;
  return is_same_namespace && surroundings.life == os::Life::kDead;
}

LeaseTime LeaseWatch::lease_time() const {
  if (!record_) return unknown_lease_;
  return std::chrono::milliseconds(std::min(record_->lease_ms, kMaxLeaseMs));
}

void LeaseWatch::see(const LeaseSighting& sighting, LeaseTime now) {
  // After a long pause between looks, a change may come from a holder that is dead by now.
  const bool is_first = !is_seen_;
  const bool was_watched = !is_first && now - looked_ < lease_time();
  is_seen_ = true;
  looked_ = now;
  if (is_first || sighting.epoch != epoch_) {
    is_renewed_ = was_watched && sighting.epoch > epoch_;  // taken during the watch
    record_.reset();
    epoch_ = sighting.epoch;
  } else if (sighting.text != text_) {
    is_renewed_ = was_watched;  // also true for a torn record, which is being written
  } else {
    is_over_ = is_over_ || sighting.is_proven_dead;
    return;
  }
  since_ = now;
  text_ = sighting.text;
  if (auto record = decode_lease(text_)) record_ = std::move(record);
  is_over_ = epoch_ == 0 || sighting.is_proven_dead || (record_ && record_->is_released);
}

LeaseWatch::State LeaseWatch::state(LeaseTime now) const {
  if (!is_seen_) return State::kUnseen;
  if (is_over_ || unchanged_for(now) >= lease_time()) return State::kFree;
  return is_renewed_ ? State::kHeld : State::kWatching;
}

LeaseTime wait_for(const LeaseRequest& request, const std::optional<LeaseRecord>& held) {
  if (request.wait) return *request.wait;
  if (held && is_same_process(held->holder.process, request.process)) return LeaseTime(0);
  const bool is_same_job = held && !request.job_id.empty() && held->holder.job_id == request.job_id;
  return request.restarts > 0 || is_same_job ? kRequeuedWait : LeaseTime(0);
}

LeaseAnswer answer(const LeaseWatch& watch, const LeaseRequest& request, LeaseTime waited, LeaseTime now) {
  const bool is_here = watch.record() && is_same_process(watch.record()->holder.process, request.process);
  switch (watch.state(now)) {
    case LeaseWatch::State::kFree: return LeaseAnswer::kTake;
    case LeaseWatch::State::kHeld:
      if (!watch.record()) return LeaseAnswer::kLookAgain;  // being written: wait for the holder's name
      return waited < wait_for(request, watch.record()) ? LeaseAnswer::kLookAgain : LeaseAnswer::kRefuse;
    case LeaseWatch::State::kUnseen:
    case LeaseWatch::State::kWatching:
      return is_here && waited >= wait_for(request, watch.record()) ? LeaseAnswer::kRefuse : LeaseAnswer::kLookAgain;
  }
  return LeaseAnswer::kLookAgain;
}

}  // namespace cairn::root
