// The asynchronous save: plan and snapshot while the program waits, the rest in a background thread.
//
// The steps are those of save.hpp, split where the program's memory is no longer needed. The saver has a separate
// communicator. The program's thread plans and saves synchronously on it while no asynchronous save is running; the
// background thread does the rest. That thread never blocks inside MPI (comm/wait.hpp), and sends messages of at most
// 1 MiB, so that small messages of the program are not held up.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "cairn/checkpoint.hpp"
#include "checkpoint/call.hpp"
#include "checkpoint/root_log.hpp"
#include "checkpoint/save.hpp"
#include "checkpoint/snapshot.hpp"
#include "comm/at_finalize.hpp"
#include "comm/communicator.hpp"
#include "io/window_pool.hpp"
#include "os/access.hpp"

namespace cairn::checkpoint {

/// The state of an asynchronous save, shared by its ticket, its thread and the AsyncSaver. Thread-safe.
class SaveState {
 public:
  explicit SaveState(std::uint64_t step) : step_(step) {}

  [[nodiscard]] std::uint64_t step() const { return step_; }
  [[nodiscard]] bool is_done() const;
  void wait() const;
  /// Waits for the end. Rethrows the exception of a save that failed.
  [[nodiscard]] const Report& report() const;
  [[nodiscard]] std::exception_ptr failure() const { return failure_; }

  /// Once the save is done: whether ask_to_cancel() ended it, so that there is no checkpoint.
  [[nodiscard]] bool was_cancelled() const { return was_cancelled_.load(std::memory_order_relaxed); }
  void set_cancelled() { was_cancelled_.store(true, std::memory_order_relaxed); }
  void ask_to_cancel() { is_cancelled_.store(true, std::memory_order_relaxed); }
  [[nodiscard]] bool is_cancelled() const { return is_cancelled_.load(std::memory_order_relaxed); }

  /// Tells wait_for_sources() that the save no longer needs the program's memory.
  void release_sources();
  void wait_for_sources() const;
  void finish(Report report, std::exception_ptr failure);

 private:
  const std::uint64_t step_;
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  bool is_released_ = false;
  bool is_done_ = false;
  std::atomic<bool> is_cancelled_{false};
  std::atomic<bool> was_cancelled_{false};
  Report report_;
  std::exception_ptr failure_;
};

/// A thread that runs one piece of work at a time.
class Worker {
 public:
  /// Throws Error(kIo) if no thread can be started, kUsage if `cores` are invalid (os::cores_of) or not allowed.
  explicit Worker(const std::string& cores);
  /// Waits for the running work.
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  /// Requires: an idle thread. Allocates nothing, cannot fail. `work` must not throw, and must stay valid until done.
  void begin(const std::function<void()>& work) noexcept;

 private:
  void run();
  std::mutex mutex_;
  std::condition_variable changed_;
  const std::function<void()>* work_ = nullptr;
  bool is_ending_ = false;
  std::thread thread_;
};

class AsyncSaver {
 public:
  struct Setup {
    comm::Communicator& communicator;  ///< used only for saves of this object, which it must outlive
    Options options;
    os::Access access;       ///< access of new files
    std::string why_not;     ///< reason to save synchronously, the same on all ranks; or empty
    RootLog* log = nullptr;  ///< log of the root, on rank 0; must outlive the object
  };
  /// Rank-local. Throws as the constructors of Worker and AtFinalize.
  explicit AsyncSaver(Setup setup);
  /// Waits for the running save.
  ~AsyncSaver();

  /// `root` must outlive the save.
  struct Request : SaveRequest {
    std::span<const Source> state;
    std::chrono::steady_clock::time_point began = std::chrono::steady_clock::now();  ///< when the stall began
    double wait_seconds = 0;  ///< the program's wait for the previous save
  };
  // Collective, on this object's communicator.

  /// Requires: no save is running. Returns when the program may change the state.
  std::shared_ptr<SaveState> start(const Request& request);
  /// A synchronous save with the same plan and windows, after the running save.
  Report save(const Request& request);
  /// Requires: no save is running. Plans the state and makes room for its snapshot. `storage`: root of the saves.
  void prepare(const std::filesystem::path& storage, std::span<const Source> state);
  /// Frees plan, windows and snapshot, after the running save.
  void release_memory();

  /// As SaveWriter::compare_with().
  void compare_with(StepBefore before) { saver_.writer.compare_with(std::move(before)); }

  /// Rank-local.
  [[nodiscard]] bool is_busy() const { return current_ && !current_->is_done(); }
  void wait();

 private:
  struct Job;
  class Hooks;
  using Clock = std::chrono::steady_clock;
  bool take(Job& job, std::span<const Source> state);
  bool take_whole(Job& job, std::span<const Source> state);
  void plan(Job& job, std::span<const Source> state, Call& call);
  [[nodiscard]] bool fits(const PlannedSave& planned, std::uint64_t first_round) const;
  std::uint64_t first_round_that_fits(const PlannedSave& planned);
  std::uint64_t plan_to_fit(Job& job, std::span<const Source> state, Call& call);
  void make_room(Job& job, const SnapshotParts& parts);
  void finish_at_finalize() noexcept;
  void wait_for_copy(std::span<const std::byte> bytes) const;
  void copy(Job& job) noexcept;
  void agree_on_copy(const Job& job);
  void finish(Job& job) noexcept;
  Report write(Job& job);
  void add_stall(const Job& job, Report& report);
  void add_to_log(const Job& job, const Report& report, const std::exception_ptr& failure) noexcept;

  comm::Communicator& communicator_;
  const Options options_;
  const os::Access access_;
  const std::string why_not_;
  RootLog* const log_;
  io::WindowStore windows_;
  Saver saver_;
  Snapshot snapshot_;
  bool device_fits_ = true;         ///< the same on all ranks
  std::vector<std::string> names_;  ///< names of the planned state's tensors
  std::string last_failure_;
  std::shared_ptr<SaveState> current_;
  std::unique_ptr<Job> job_;
  std::function<void()> work_;
  Worker worker_;                       // its thread uses the members above
  const comm::AtFinalize at_finalize_;  // last: its work waits for that thread
};

}  // namespace cairn::checkpoint
