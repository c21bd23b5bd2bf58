// The calls of a Checkpointer, as lines of the root's log (root/run_log.hpp).
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <mutex>
#include <optional>
#include <string>

#include "cairn/checkpoint.hpp"
#include "checkpoint/verify.hpp"
#include "comm/communicator.hpp"
#include "os/access.hpp"
#include "root/run_log.hpp"

namespace cairn::checkpoint {

struct RootLife;

/// Rank-local: format::kLogRefused for an error of the caller, because of another saver, or before the first byte for
/// want of room, permission or the like; format::kLogFailed where the system, the checkpoint or a rank failed.
const char* outcome_of(const Error& error, comm::Communicator& communicator);

/// Pure: the kind of an error as a word of the log.
const char* word_of(ErrorKind kind);

/// Rank-local, on rank 0. Never throws; every function appends one line, or none. Thread-safe.
class RootLog {
 public:
  using Clock = std::chrono::steady_clock;

  RootLog(std::filesystem::path root, os::Access access, const comm::Communicator& communicator);

  /// A save that succeeded; a line about its pruning, if that removed something, is before its own. `life`: what it
  /// noted.
  void add_save(const Report& report, const RootLife& life) noexcept;
  void add_load(const Report& report, const std::string& run_id) noexcept;
  /// A call that has no report.
  struct Ended {
    const char* what = format::kLogSave;
    std::optional<std::uint64_t> step = {};
    const char* outcome = format::kLogFailed;
    Clock::time_point began = Clock::now();
  };
  void add_error(const Ended& call, const Error& error) noexcept;
  /// A save that save_async() left out, because the one before was still running.
  void add_skipped(std::uint64_t step) noexcept;

 private:
  [[nodiscard]] format::LogCall begin(const char* what, std::optional<std::uint64_t> step, const char* outcome) const;
  /// Sets `is_first` and `work_seconds` of a good save that ends now.
  void add_work(format::LogCall& call);

  root::RunLog log_;
  const std::uint64_t ranks_;
  const std::uint64_t nodes_;
  std::mutex saves_;  ///< guards the two below
  bool has_saved_ = false;
  Clock::time_point works_since_ = Clock::now();
};

/// Collective: verify(). If the checkpoint is a step of a root, rank 0 adds a line to the root's log, also about an
/// error other than kNotFound. One that ended early without a fault is a scrub there.
VerifyResult verify_and_log(comm::Communicator& communicator, const std::filesystem::path& path,
                            const opening::Allowed& allowed = {}, const VerifyPart& part = {});

}  // namespace cairn::checkpoint
