#include "bench/async_runner.hpp"

#include <fmt/core.h>
#include <mpi.h>
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <optional>
#include <span>
#include <thread>

#include "base/aligned_buffer.hpp"
#include "bench/demo_state.hpp"
#include "bench/shards_of.hpp"
#include "cairn/error.hpp"
#include "comm/agree.hpp"
#include "comm/mpi.hpp"
#include "os/process.hpp"
#include "root/root.hpp"
#include "shard/shard_map.hpp"

namespace cairn::bench {
namespace {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

/// Keeps this thread on some processors while the object exists.
class OnCores {
 public:
  explicit OnCores(const std::string& cores) {
    if (cores.empty()) return;
    const cpu_set_t wanted = os::cores_of(cores);
    ::sched_getaffinity(0, sizeof before_, &before_);
    if (::sched_setaffinity(0, sizeof wanted, &wanted) != 0) {
      throw Error(ErrorKind::kUsage, fmt::format("--program-cores: this process may not use processors {}", cores));
    }
    is_set_ = true;
  }
  ~OnCores() {
    if (is_set_) ::sched_setaffinity(0, sizeof before_, &before_);
  }
  OnCores(const OnCores&) = delete;
  OnCores& operator=(const OnCores&) = delete;

 private:
  cpu_set_t before_{};
  bool is_set_ = false;
};

/// The parts of a training step that a save can disturb: computation, and small messages among all ranks.
class Steps {
 public:
  explicit Steps(comm::Communicator& communicator)
      : comm_(comm::native_handle(communicator)), numbers_(kNumbers, 1.0) {}

  /// Collective. Makes one step, and returns whether `flag` is true on all ranks.
  bool make(bool flag) {
    for (int pass = 0; pass < kPasses; ++pass) {
      for (double& number : numbers_) number = number * 0.999 + 0.001;
    }
    int all = flag ? 1 : 0;
    for (int message = 0; message < kMessages; ++message) {
      MPI_Allreduce(MPI_IN_PLACE, &all, 1, MPI_INT, MPI_MIN, comm_);
    }
    return all != 0;
  }

 private:
  static constexpr std::size_t kNumbers = 32 << 10;  // fit into a core's second-level cache
  static constexpr int kPasses = 120;                // take about a millisecond
  static constexpr int kMessages = 4;
  MPI_Comm comm_;
  std::vector<double> numbers_;
};

class Measuring {
 public:
  Measuring(comm::Communicator& communicator, const Workload& workload, const AsyncRunOptions& options)
      : communicator_(communicator), state_(workload.state), options_(options), steps_(communicator) {
    comm::agree(communicator, "make the state", [&] {
      const shard::ShardMap map(shard::Layout::from_text(options.layout), state_.model, state_.sections,
                                state_.tensors);
      held_.emplace(state_, map, communicator.rank());
      held_->fill();
      sources_ = shards_of<Source>(state_, *held_);
    });
    run_.workload = workload.name;
    run_.layout = options.layout;
    run_.state_bytes = state_.bytes;
  }

  AsyncRun run() {
    Options options = options_.checkpointer;
    options.checks.stale = StaleSections::kIgnore;  // every repeat saves the same state
    options.waiting.then = OnSilence::kEndProcess;
    Checkpointer checkpointer(comm::native_handle(communicator_), options_.directory, options);
    begin(checkpointer);
    for (std::uint64_t repeat = 0; repeat < options_.warm_up + options_.repeats; ++repeat) {
      const bool counts = repeat >= options_.warm_up;
      const AsyncSample sample = measure(checkpointer);
      if (counts) run_.samples.push_back(sample);
      if (communicator_.rank() != 0 || !options_.tell) continue;
      options_.tell(fmt::format("{} {}: copy {:.3f} s, stall {:.3f} s, behind the program {:.2f} s",
                                counts ? "repeat" : "warm-up", counts ? run_.samples.size() : repeat + 1, sample.memcpy,
                                sample.stall, sample.behind));
    }
    verify(checkpointer);
    return std::move(run_);
  }

 private:
  [[nodiscard]] double slowest(double seconds) {
    communicator_.all_reduce(std::span(&seconds, 1), comm::ReduceOp::kMax);
    return seconds;
  }
  [[nodiscard]] double since_all_came(Clock::time_point start) { return slowest(seconds_since(start)); }
  Clock::time_point all_come() {
    communicator_.barrier();
    return Clock::now();
  }

  /// Makes the first save, which plans and allocates the pool. Then allocates the memory for copies.
  void begin(Checkpointer& checkpointer) {
    SaveTicket ticket = checkpointer.save_async(next_step(), sources_);
    const Report report = ticket.wait();
    if (!report.stall || report.stall->snapshot_bytes == 0) {
      throw Error(ErrorKind::kUsage,
                  report.warnings.empty() ? "no rank has anything to save" : report.warnings.front());
    }
    run_.engine = report.engine;
    run_.first_stall = report.stall->seconds;
    run_.prepare = report.stall->prepare_seconds;
    run_.snapshot_bytes = report.stall->snapshot_bytes;
    run_.pool_bytes = report.stall->pool_bytes;
    comm::agree(communicator_, "make memory for a copy", [&] {
      const auto ranks = static_cast<std::uint64_t>(communicator_.size());
      copy_bytes_ = std::min(held_->bytes(), run_.snapshot_bytes / ranks);
      copy_ = base::AlignedBuffer(copy_bytes_);
      std::memset(copy_.span().data(), 1, copy_bytes_);
    });
  }

  AsyncSample measure(Checkpointer& checkpointer) {
    AsyncSample sample;
    const std::span<std::byte> from = held_->held().empty() ? std::span<std::byte>() : held_->memory_of(0);
    auto start = all_come();
    if (copy_bytes_ != 0) std::memcpy(copy_.span().data(), from.data(), copy_bytes_);
    sample.memcpy = since_all_came(start);

    std::uint64_t step = next_step();
    start = all_come();
    checkpointer.save(step, sources_);
    sample.save = since_all_came(start);

    step = next_step();
    start = all_come();
    SaveTicket ticket = checkpointer.save_async(step, sources_);
    sample.stall = slowest(seconds_since(start));
    while (!ticket.test()) std::this_thread::sleep_for(1ms);
    sample.behind = since_all_came(start);
    const Report report = ticket.wait();
    if (report.stall) {
      sample.stall_plan = report.stall->plan_seconds;
      sample.stall_copy = report.stall->copy_seconds;
    }

    const OnCores cores(options_.program_cores);
    step = next_step();
    start = all_come();
    ticket = checkpointer.save_async(step, sources_);
    const auto stepping = Clock::now();
    bool is_over = false;
    while (!is_over) {
      is_over = steps_.make(ticket.test());
      ++sample.steps;
    }
    sample.busy_step = since_all_came(stepping) / static_cast<double>(sample.steps);
    sample.busy = since_all_came(start);
    ticket.wait();
    start = all_come();
    for (std::uint64_t made = 0; made < sample.steps; ++made) steps_.make(true);
    sample.step = since_all_came(start) / static_cast<double>(sample.steps);
    return sample;
  }

  /// Loads the last save into the memory of the state, and compares every byte.
  void verify(Checkpointer& checkpointer) {
    comm::agree(communicator_, "make the memory", [&] { held_->overwrite(); });
    checkpointer.load(step_, shards_of<Target>(state_, *held_));
    run_.verified_bytes = check_loaded(communicator_, *held_, state_, "asynchronous save");
  }

  /// Returns the step for the next checkpoint, and removes the previous checkpoint; not timed.
  std::uint64_t next_step() {
    if (communicator_.rank() == 0 && step_ != 0) {
      std::error_code ignored;
      std::filesystem::remove_all(root::checkpoint_directory(options_.directory, step_), ignored);
    }
    return ++step_;
  }

  comm::Communicator& communicator_;
  const DemoState& state_;
  const AsyncRunOptions& options_;
  Steps steps_;
  std::optional<HeldState> held_;
  std::vector<Source> sources_;
  base::AlignedBuffer copy_;
  std::uint64_t copy_bytes_ = 0;
  std::uint64_t step_ = 0;
  AsyncRun run_;
};

}  // namespace

AsyncRun measure_async(comm::Communicator& communicator, const Workload& workload, const AsyncRunOptions& options) {
  return Measuring(communicator, workload, options).run();
}

}  // namespace cairn::bench
