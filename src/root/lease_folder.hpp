// The lease of a root: what it says, when another saver may take it, and the directory `.cairn` that has it.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "os/process.hpp"

namespace cairn::root {

// What the lease of a root says, and when another saver may take it: values and decisions, without files or clocks.
//
// A lease is a file `.cairn/epoch-<n>` that its holder alone writes, in place, again and again with a higher sequence
// number. Nobody's clock is compared with another's: who wants the lease watches the file, and takes it when it has not
// changed for the lease time that it states. Two things only end the watch sooner: the record says that it was
// released, or the holder is proven dead on this machine. None of this keeps data whole by itself: a holder that was
// taken for dead and goes on is stopped by the commit (commit.hpp).

/// Time since any beginning, of one clock of one process.
using LeaseTime = std::chrono::nanoseconds;

struct Holder {
  os::ProcessName process;
  std::string job_id;          ///< of the batch system, or empty
  std::uint64_t restarts = 0;  ///< how often the batch system has started the job again
  std::string nonce;           ///< of one saver: in the names of all that it makes in the root
  std::uint64_t since_s = 0;   ///< Unix time when the lease was taken: for people only
};

struct LeaseRecord {
  Holder holder;
  std::uint64_t lease_ms = 0;  ///< without a renewal for so long, the lease has run out
  std::uint64_t sequence = 0;  ///< of renewals
  bool is_released = false;
  bool is_locked = false;  ///< the holder has a lock (flock) of the file, and had it before it wrote this
};

/// Every record has this size, so that one is written over another.
inline constexpr std::size_t kLeaseRecordBytes = 1024;
/// A longer lease time is not believed.
inline constexpr std::uint64_t kMaxLeaseMs = 3'600'000;

/// Text of exactly kLeaseRecordBytes bytes that people can read too; the last line is a checksum.
std::string encode_lease(const LeaseRecord& record);
/// Nothing for a torn record, or one of another form.
std::optional<LeaseRecord> decode_lease(std::string_view text);

/// "process 123 on n1 (job 45, since 2026-11-22 13:55:31 UTC)".
std::string describe(const Holder& holder);

/// False where the system does not tell enough of them.
bool is_same_process(const os::ProcessName& a, const os::ProcessName& b);

/// While it lives, this process knows that its saver of this nonce does.
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

/// What an observer finds out beside the file.
struct Surroundings {
  os::ProcessName observer;
  bool is_local = false;               ///< only this machine sees the files
  bool has_lock = false;               ///< the observer got the lock of the lease's file
  os::Life life = os::Life::kUnknown;  ///< of the process with the holder's number and start time
  bool is_here = false;                ///< the holder is a saver of the observer's own process, and is not gone
};
/// Whether the holder cannot be alive. Of its own process the observer knows; otherwise a lock proves nothing on a shared file system, where a partition loses it, and a
/// process number means nothing in another namespace.
bool is_proven_dead(const LeaseRecord& record, const Surroundings& surroundings);

/// One look at the highest epoch under a root.
struct LeaseSighting {
  std::uint64_t epoch = 0;  ///< 0: there is none
  std::string text;         ///< the file, whatever it holds
  bool is_proven_dead = false;
};

/// Watches the lease by a clock of its own.
class LeaseWatch {
 public:
  /// `unknown_lease` is the lease time of a record that could never be read.
  explicit LeaseWatch(LeaseTime unknown_lease) : unknown_lease_(unknown_lease) {}

  /// `now` is a moment after the look.
  void see(const LeaseSighting& sighting, LeaseTime now);

  enum class State {
    kUnseen,    ///< no look yet
    kFree,      ///< nobody has the lease: there is none, it was released, its holder is dead, or it has run out
    kWatching,  ///< no sign of life yet, and not run out
    kHeld,      ///< a renewal, or a new holder, was seen between two looks that are less than a lease time apart
  };
  [[nodiscard]] State state(LeaseTime now) const;
  /// How long nothing has changed.
  [[nodiscard]] LeaseTime unchanged_for(LeaseTime now) const { return now - since_; }
  [[nodiscard]] LeaseTime lease_time() const;

  [[nodiscard]] std::uint64_t epoch() const { return epoch_; }
  /// The last one of this epoch that could be read.
  [[nodiscard]] const std::optional<LeaseRecord>& record() const { return record_; }

 private:
  LeaseTime unknown_lease_;
  bool is_seen_ = false;
  bool is_over_ = false;  ///< released, or the holder is dead
  bool is_renewed_ = false;
  std::uint64_t epoch_ = 0;
  std::string text_;
  std::optional<LeaseRecord> record_;
  LeaseTime since_{0};
  LeaseTime looked_{0};
};

/// Who wants the lease, and how long it would wait for a holder that lives.
struct LeaseRequest {
  os::ProcessName process;
  std::string job_id;
  std::uint64_t restarts = 0;
  std::optional<LeaseTime> wait;  ///< nothing: not at all, but a job that was started again waits kRequeuedWait
};
inline constexpr LeaseTime kRequeuedWait = std::chrono::minutes(30);

/// A job that the batch system has started again, or a second step of the same job, waits for the one before to end. A
/// process never waits for itself.
LeaseTime wait_for(const LeaseRequest& request, const std::optional<LeaseRecord>& held);

enum class LeaseAnswer { kTake, kLookAgain, kRefuse };
/// `waited` is the time since the lease was first asked for. A holder in the same process is alive (is_proven_dead): nobody
/// watches it first.
LeaseAnswer answer(const LeaseWatch& watch, const LeaseRequest& request, LeaseTime waited, LeaseTime now);

// The directory `.cairn` of a root as a saver reads it: epochs, what their files say, and what else tells of their
// holders.

inline constexpr const char* kLeaseDirectory = ".cairn";

/// Of this process, by its environment. Throws kUsage for a time that nobody can wait.
LeaseRequest own_request(const std::optional<double>& wait_seconds);

/// Rank-local; errors of the file system are kIo. Nothing here changes what another saver wrote, but for clear_old().
class LeaseFolder {
 public:
  /// `nonce` is in the names that refresh() uses.
  LeaseFolder(const std::filesystem::path& root, os::ProcessName process, std::string nonce);

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  [[nodiscard]] std::filesystem::path path_of(std::uint64_t epoch) const;

  /// 0 when there is none, or no such directory.
  [[nodiscard]] std::uint64_t highest_epoch() const;
  /// The directory as its server has it (os::refresh_directory); nothing where it does not exist.
  void refresh() const;
  /// One look at the highest epoch, as an observer on this machine.
  [[nodiscard]] LeaseSighting see() const;
  /// Whether the epoch's record is another saver's; no for one that is torn.
  [[nodiscard]] bool is_of_another(std::uint64_t epoch) const;
  /// Who has the epoch, in words.
  [[nodiscard]] std::string name_holder(std::uint64_t epoch) const;
  /// Removes epochs long below `own`, and what others left of a refresh(); never throws.
  void clear_old(std::uint64_t own) const noexcept;

 private:
  [[nodiscard]] Surroundings surroundings_of(const LeaseRecord& record, const std::filesystem::path& file) const;

  std::filesystem::path path_;
  os::ProcessName process_;
  std::string nonce_;
};

}  // namespace cairn::root
