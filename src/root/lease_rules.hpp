// The lease of a root: its record, and the rules by which another saver may take it. Values and decisions, without
// files or clocks.
//
// A lease is a file `.cairn/epoch-<n>`. Only its holder writes the file, in place, each time with a higher sequence
// number. Clocks of different machines are never compared: a saver that wants the lease watches the file, and takes the
// lease if the file has not changed for the lease time in it. The watch ends sooner if the record says
// "released", or if the holder is proven dead on this machine. These rules alone do not protect data: the commit stops
// a live holder that was presumed dead (commit.hpp).
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "os/process.hpp"

namespace cairn::root {

/// A time on one clock of one process, from any origin.
using LeaseTime = std::chrono::nanoseconds;

struct Holder {
  os::ProcessName process;
  std::string job_id;          ///< the batch system's id of the job, or empty
  std::uint64_t restarts = 0;  ///< number of restarts of the job, by the batch system
  std::string nonce;           ///< identifies one saver; part of the temporary names that its commits make in the root
  std::uint64_t since_s = 0;   ///< Unix time at which the lease was taken: for users only
};

struct LeaseRecord {
  Holder holder;
  std::uint64_t lease_ms = 0;  ///< the lease runs out after this time without a renewal
  std::uint64_t sequence = 0;  ///< number of the last renewal
  bool is_released = false;
  bool is_locked = false;  ///< the holder has had a lock (flock) on the file since before it wrote this
};

/// All records have the same size, so that a new record overwrites the old one.
inline constexpr std::size_t kLeaseRecordBytes = 1024;
/// The longest lease time: a longer one in a record is cut to this.
inline constexpr std::uint64_t kMaxLeaseMs = 3'600'000;

/// Readable text of exactly kLeaseRecordBytes bytes; the last line is a checksum.
std::string encode_lease(const LeaseRecord& record);
/// Decodes a record; nothing for a torn record, or a record in a different format.
std::optional<LeaseRecord> decode_lease(std::string_view text);

/// "process 123 on n1 (job 45, since 2026-11-22 13:55:31 UTC)".
std::string describe(const Holder& holder);

/// Whether both names mean the same process; false if the system does not identify the processes well enough.
bool is_same_process(const os::ProcessName& a, const os::ProcessName& b);

/// Registers the nonce of a saver of this process as alive, while the object exists.
class LiveSaver {
 public:
  explicit LiveSaver(std::string nonce);
  ~LiveSaver();
  LiveSaver(const LiveSaver&) = delete;
  LiveSaver& operator=(const LiveSaver&) = delete;
  [[nodiscard]] static bool is_there(const std::string& nonce);

 private:
  std::string nonce_;
};

/// Facts that an observer finds out from sources other than the record.
struct Surroundings {
  os::ProcessName observer;
  bool is_local = false;               ///< the file system is local (os::FileSystemInfo)
  bool has_lock = false;               ///< the observer got the lock of the lease's file
  os::Life life = os::Life::kUnknown;  ///< state of the process with the holder's number and start time
  bool is_here = false;                ///< the holder is a live saver of the observer's own process
};
/// Whether the holder cannot be alive. An observer knows this of savers in its own process. For other savers, the
/// lock counts only on a local file system (a network partition loses locks), a process number only in its namespace.
bool is_proven_dead(const LeaseRecord& record, const Surroundings& surroundings);

/// One look at the highest epoch under a root.
struct LeaseSighting {
  std::uint64_t epoch = 0;  ///< 0: there is none
  std::string text;         ///< content of the file, valid or not
  bool is_proven_dead = false;
};

/// Watches the lease. The time of the observer's clock is passed in.
class LeaseWatch {
 public:
  /// `unknown_lease`: lease time that counts until a record can be read.
  explicit LeaseWatch(LeaseTime unknown_lease) : unknown_lease_(unknown_lease) {}

  /// `now`: a time after the look.
  void see(const LeaseSighting& sighting, LeaseTime now);

  enum class State {
    kUnseen,    ///< no look yet
    kFree,      ///< there is no lease, it was released, its holder is dead, or it has run out
    kWatching,  ///< no sign of life yet, but the lease has not run out
    kHeld,      ///< a renewal or a new holder was seen between two looks less than a lease time apart
  };
  [[nodiscard]] State state(LeaseTime now) const;
  [[nodiscard]] LeaseTime unchanged_for(LeaseTime now) const { return now - since_; }
  [[nodiscard]] LeaseTime lease_time() const;

  [[nodiscard]] std::uint64_t epoch() const { return epoch_; }
  /// The last readable record of this epoch.
  [[nodiscard]] const std::optional<LeaseRecord>& record() const { return record_; }

 private:
  LeaseTime unknown_lease_;
  bool is_seen_ = false;
  bool is_over_ = false;  ///< there is no epoch, it was released, or its holder is dead
  bool is_renewed_ = false;
  std::uint64_t epoch_ = 0;
  std::string text_;
  std::optional<LeaseRecord> record_;
  LeaseTime since_{0};
  LeaseTime looked_{0};
};

/// A saver that wants the lease.
struct LeaseRequest {
  os::ProcessName process;
  std::string job_id;
  std::uint64_t restarts = 0;
  std::optional<LeaseTime> wait;  ///< time to wait for a live holder; unset: wait_for() decides
};
inline constexpr LeaseTime kRequeuedWait = std::chrono::minutes(30);

/// The time to wait for a live holder: a restarted job, or a second step of the same job, waits for the former process
/// to end. A process never waits for itself, unless `request.wait` is set.
LeaseTime wait_for(const LeaseRequest& request, const std::optional<LeaseRecord>& held);

enum class LeaseAnswer { kTake, kLookAgain, kRefuse };
/// `waited`: time since the first request. A holder in the same process is known to be alive or dead without a
/// watch (is_proven_dead()).
LeaseAnswer answer(const LeaseWatch& watch, const LeaseRequest& request, LeaseTime waited, LeaseTime now);

}  // namespace cairn::root
