#include "checkpoint/async.hpp"

#include <fmt/core.h>
#include <pthread.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <system_error>
#include <utility>

#include "base/log.hpp"
#include "base/text.hpp"
#include "cairn/error.hpp"
#include "checkpoint/part.hpp"
#include "checkpoint/progress.hpp"
#include "comm/agree.hpp"
#include "comm/wait.hpp"
#include "os/clock.hpp"
#include "os/fault.hpp"
#include "os/file.hpp"
#include "os/process.hpp"
#include "planning/describe.hpp"

namespace cairn::checkpoint {
namespace {

constexpr std::uint64_t kLargestMessageBytes = 1ULL << 20;
constexpr std::chrono::milliseconds kLongestNap{50};
constexpr const char* kTooLarge = "the snapshot is larger than Options::async.max_snapshot_bytes on a rank";

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

std::string text_of(const std::exception_ptr& failure) noexcept {
  try {
    std::rethrow_exception(failure);
  } catch (const std::exception& error) {
    try {
      return error.what();
    } catch (...) {
    }
  } catch (...) {
  }
  return {};
}

bool has_device_memory(std::span<const Source> state) {
  return std::any_of(state.begin(), state.end(), [](const Source& s) { return s.memory == Memory::kDevice; });
}

/// The memory of a source as one box of bytes that begins `shift` bytes after the source's pointer.
struct WholeSource {
  plan::MemoryBox bytes;
  std::uint64_t shift = 0;
};

WholeSource whole_source(const Source& source) {
  std::vector<plan::MemoryBox> boxes;
  planning::add_boxes(source, 0, boxes);
  const auto* const data = static_cast<const std::byte*>(source.data);
  plan::MemorySpan span;
  for (const plan::MemoryBox& box : boxes) {
    if (box.bytes.empty()) continue;
    const auto begin = static_cast<std::uint64_t>(box.bytes.data() - data);
    span.cover({begin, begin + box.bytes.size()});
  }
  WholeSource whole;
  whole.shift = span.begin;
  if (span.bytes() != 0) whole.bytes.bytes = {const_cast<std::byte*>(data) + span.begin, span.bytes()};  // only read
  return whole;
}

}  // namespace

bool SaveState::is_done() const {
  const std::lock_guard lock(mutex_);
  return is_done_;
}

void SaveState::wait() const {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return is_done_; });
}

const Report& SaveState::report() const {
  wait();
  if (failure_) std::rethrow_exception(failure_);
  return report_;
}

void SaveState::release_sources() {
  const std::lock_guard lock(mutex_);
  is_released_ = true;
  changed_.notify_all();
}

void SaveState::wait_for_sources() const {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return is_released_; });
}

void SaveState::finish(Report report, std::exception_ptr failure) {
  const std::lock_guard lock(mutex_);
  report_ = std::move(report);
  failure_ = std::move(failure);
  is_released_ = true;
  is_done_ = true;
  changed_.notify_all();
}

Worker::Worker(const std::string& cores) {
  cpu_set_t allowed;
  if (!cores.empty()) allowed = os::cores_of(cores);
  try {
    if (os::check_fault("thread.async", {})) {
      throw std::system_error(std::make_error_code(std::errc::resource_unavailable_try_again));
    }
    thread_ = os::start_thread([this] { run(); });
  } catch (const std::system_error& error) {
    throw Error(ErrorKind::kIo, fmt::format("no thread for asynchronous saves: {}", error.what()),
                {error.code().value(), {}, -1});
  }
  if (cores.empty()) return;
  const auto fault = os::check_fault("thread.affinity", {});
  const int why = fault ? fault->error : ::pthread_setaffinity_np(thread_.native_handle(), sizeof allowed, &allowed);
  if (why == 0) return;
  {
    const std::lock_guard lock(mutex_);
    is_ending_ = true;
  }
  changed_.notify_all();
  thread_.join();
  throw Error(
      ErrorKind::kUsage,
      fmt::format("Options::async.cores: this process may not use processors {}: {}", cores, std::strerror(why)),
      {why, {}, -1});
}

Worker::~Worker() {
  {
    const std::lock_guard lock(mutex_);
    is_ending_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void Worker::begin(const std::function<void()>& work) noexcept {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return work_ == nullptr; });  // the thread may still be returning from the previous work
  work_ = &work;
  changed_.notify_all();
}

void Worker::run() {
  const comm::PatientWaits patient;
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return work_ != nullptr || is_ending_; });
    if (work_ == nullptr) return;
    lock.unlock();
    (*work_)();
    lock.lock();
    work_ = nullptr;
    changed_.notify_all();
  }
}

/// A running save.
struct AsyncSaver::Job {
  std::shared_ptr<SaveState> state;
  std::filesystem::path directory;
  Extras extras;
  RootLife* root = nullptr;
  std::vector<Source> sources;  ///< copied sources, to be coded in the background; or sources of a synchronous save
  std::optional<PlannedSave> planned;  ///< empty: not yet planned
  std::exception_ptr copy_failure;     ///< this rank's failure to copy
  std::uint64_t first_late = 0;        ///< first round that reads the snapshot
  bool is_synchronous = false;
  std::string why_not;  ///< reason to save synchronously

  [[nodiscard]] bool has_direct_runs() const { return planned && planned->files->has_direct_runs(); }
  Clock::time_point began = Clock::now();
  PhaseClock clock{began};
  Stall stall;  ///< stall of this rank
};

class AsyncSaver::Hooks final : public SaveHooks {
 public:
  Hooks(AsyncSaver& saver, Job& job) : saver_(saver), job_(job) {}

  void wait_for(std::span<const std::byte> bytes) override { saver_.wait_for_copy(bytes); }

  void before_round(std::uint64_t round, std::uint64_t bytes) override {
    if (round == 0 && job_.has_direct_runs()) saver_.agree_on_copy(job_);
    stop_if_cancelled();
    if (round == job_.first_late && round != 0) {
      job_.stall.seconds = seconds_since(job_.began);
      job_.state->release_sources();
    }
    pace(bytes);
  }

  void before_commit() override {
    stop_if_cancelled();
    comm::agree(saver_.communicator_, "commit", [&] { check_unchanged(); });
  }

 private:
  /// Collective.
  void stop_if_cancelled() const {
    if (saver_.communicator_.max(job_.state->is_cancelled() ? 1 : 0) == 0) return;
    job_.state->set_cancelled();
    throw comm::AgreedError(ErrorKind::kState, fmt::format("the save of step {} was cancelled", job_.state->step()));
  }

  void check_unchanged() const {
    const auto box = saver_.snapshot_.first_changed();
    if (!box) return;
    const std::string name =
        job_.planned ? saver_.names_.at(job_.planned->memory.at(*box).tensor) : job_.sources.at(*box).name;
    throw Error(ErrorKind::kIntegrity,
                fmt::format("tensor '{}' was changed while save_async() copied it; nothing may write into the state "
                            "before that returns",
                            base::printable(name)));
  }

  /// Sleeps while this rank is ahead of Options::async.max_bytes_per_s.
  void pace(std::uint64_t bytes) {
    const std::uint64_t limit = saver_.options_.async.max_bytes_per_s;
    if (limit == 0) return;
    if (!pace_start_) pace_start_ = Clock::now();
    paced_bytes_ += bytes;
    const double seconds = std::min(static_cast<double>(paced_bytes_) / static_cast<double>(limit), os::kLongestWaitS);
    const auto due = *pace_start_ + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
    const auto liveness = saver_.communicator_.liveness();
    for (auto now = Clock::now(); now < due && !job_.state->is_cancelled(); now = Clock::now()) {
      std::this_thread::sleep_for(std::min<Clock::duration>(due - now, kLongestNap));
      if (liveness) liveness->worked();
    }
  }

  AsyncSaver& saver_;
  Job& job_;
  std::optional<Clock::time_point> pace_start_;
  std::uint64_t paced_bytes_ = 0;
};

AsyncSaver::AsyncSaver(Setup setup)
    : communicator_(setup.communicator),
      options_(std::move(setup.options)),
      access_(setup.access),
      why_not_(std::move(setup.why_not)),
      log_(setup.log),
      saver_(communicator_, options_, windows_, {kLargestMessageBytes, options_.async.max_bytes_per_s != 0, true}),
      work_([this] { finish(*job_); }),
      worker_(options_.async.cores),
      at_finalize_([this] { finish_at_finalize(); }) {}

AsyncSaver::~AsyncSaver() { wait(); }

void AsyncSaver::wait() {
  if (current_) current_->wait();
}

/// Called in MPI_Finalize: waits for a save that is still running.
void AsyncSaver::finish_at_finalize() noexcept {
  if (!is_busy()) return;
  try {
    base::log_warning(
        fmt::format("MPI_Finalize was called while step {} was being saved, and waits for it; wait for the "
                    "ticket, and end the Checkpointer, before",
                    current_->step()));
  } catch (const std::exception&) {  // a failure to log must not stop the save
  }
  wait();
}

std::shared_ptr<SaveState> AsyncSaver::start(const Request& request) {
  run_call(communicator_, std::nullopt, "save", [&] {
    comm::agree(communicator_, "begin a save", [&] {
      job_ = std::make_unique<Job>();
      job_->began = request.began;
      job_->clock = PhaseClock(request.began);
      job_->state = std::make_shared<SaveState>(request.step);
      job_->directory = request.directory;
      job_->extras = request.extras;
      for (std::filesystem::path& file : job_->extras.carry_files) file = os::absolute_path(file);
      job_->root = request.root;
      job_->stall.wait_seconds = request.wait_seconds;
      job_->why_not = why_not_;
    });
    const PartSources saved(communicator_, options_, request.state);
    job_->is_synchronous = !why_not_.empty() || !take(*job_, saved.get());
    if (!job_->is_synchronous) return;
    comm::agree(communicator_, "save synchronously",
                [&] { job_->sources.assign(request.state.begin(), request.state.end()); });
  });
  current_ = job_->state;
  if (job_->is_synchronous) {
    finish(*job_);
    return current_;
  }
  if (job_->has_direct_runs()) {
    worker_.begin(work_);  // storage writes copied bytes during the copy of the rest; this takes little processor time
    copy(*job_);
  } else {
    copy(*job_);  // copied first, because the background would take processors from the copy
    worker_.begin(work_);
  }
  current_->wait_for_sources();
  return current_;
}

/// Collective: plans the save, except before take_whole(), and makes room for the copy. False: save synchronously.
bool AsyncSaver::take(Job& job, std::span<const Source> state) {
  const bool is_on_device = communicator_.max(has_device_memory(state) ? 1 : 0) != 0;
  const auto refuse = [&](const char* why) {
    comm::agree(communicator_, "save synchronously", [&] { job.why_not = why; });
    return false;
  };
  if (saver_.planner.choose_engine_for(job.directory).traits.uses_mpi_io) {
    return refuse("the calls of engine mpiio cannot be left once they have begun");
  }
  if (saver_.planner.is_coding() && !is_on_device) return take_whole(job, state) || refuse(kTooLarge);
  if (is_on_device && !device_fits_) return refuse(kTooLarge);

  Call call(communicator_, job.clock);
  const auto start = Clock::now();
  job.first_late = plan_to_fit(job, state, call);
  job.stall.plan_seconds = seconds_since(start);
  const PlannedSave& planned = *job.planned;
  if (is_on_device && job.first_late != 0) {
    device_fits_ = false;
    job.planned.reset();
    return refuse(kTooLarge);
  }
  // Compared now, since the snapshot omits bytes that other ranks provide.
  saver_.planner.check_replicas(*job.planned, state, job.state->step(), call);
  std::vector<plan::MemorySpan> spans;
  std::vector<std::optional<io::BoxInFile>> places;
  comm::agree(communicator_, "find what the snapshot needs", [&] {
    spans = planned.files->memory_from(job.first_late);
    places = planned.files->memory_places();
  });
  make_room(job, {planned.memory, spans, places});
  return true;
}

void AsyncSaver::plan(Job& job, std::span<const Source> state, Call& call) {
  job.planned = saver_.planner.plan(job.directory, state, job.extras.rank_blob, GatherFrom::kSnapshot, call);
  if (job.planned->report.plan_reused) return;
  comm::agree(communicator_, "note the names", [&] {
    names_.clear();
    const std::span<const Source> saved = job.planned->coder != nullptr ? job.planned->coded.sources : state;
    for (const Source& source : saved) names_.push_back(source.name);
  });
}

/// Collective: plan() and first_round_that_fits(). Plans direct runs only if the snapshot has room for all bytes.
std::uint64_t AsyncSaver::plan_to_fit(Job& job, std::span<const Source> state, Call& call) {
  plan(job, state, call);
  const std::uint64_t first = first_round_that_fits(*job.planned);
  if (first == 0 || !job.has_direct_runs()) return first;
  job.planned.reset();
  saver_.planner.use_rounds_only();
  plan(job, state, call);
  return first_round_that_fits(*job.planned);
}

/// Rank-local.
bool AsyncSaver::fits(const PlannedSave& planned, std::uint64_t first_round) const {
  const auto& limit = options_.async.max_snapshot_bytes;
  if (!limit) return true;
  const std::vector<plan::MemorySpan> spans = planned.files->memory_from(first_round);
  return snapshot_bytes({planned.memory, spans, planned.files->memory_places()}).all() <= *limit;
}

/// Collective: the earliest round from which the rest fits into Options::async.max_snapshot_bytes on all ranks.
std::uint64_t AsyncSaver::first_round_that_fits(const PlannedSave& planned) {
  std::uint64_t first = 0;
  comm::agree(communicator_, "measure the snapshot", [&] {
    if (fits(planned, 0)) return;
    std::uint64_t too_early = 0;
    first = planned.files->exchange->rounds();  // after the last round: nothing is left to copy
    while (first - too_early > 1) {
      const std::uint64_t round = too_early + (first - too_early) / 2;
      (fits(planned, round) ? first : too_early) = round;
    }
    first = std::max<std::uint64_t>(first, 1);  // bypass runs, which count as round 0, did not fit
  });
  return communicator_.max(first);
}

/// Collective: makes room for the whole state, to be coded in the background. False if the state does not fit.
bool AsyncSaver::take_whole(Job& job, std::span<const Source> state) {
  std::vector<WholeSource> whole;
  std::vector<plan::MemoryBox> boxes;
  std::vector<plan::MemorySpan> spans;
  std::uint64_t is_too_large = 0;
  comm::agree(communicator_, "describe the state", [&] {
    planning::check_shards(state);
    planning::check_distinct(state);
    for (const Source& source : state) {
      whole.push_back(whole_source(source));
      boxes.push_back(whole.back().bytes);
      spans.push_back({0, whole.back().bytes.bytes.size()});
    }
    const auto& limit = options_.async.max_snapshot_bytes;
    is_too_large = limit && snapshot_bytes({boxes, spans}).all() > *limit ? 1 : 0;
  });
  if (communicator_.max(is_too_large) != 0) return false;
  make_room(job, {boxes, spans});
  comm::agree(communicator_, "describe the snapshot", [&] {
    job.sources.assign(state.begin(), state.end());
    for (std::size_t s = 0; s < whole.size(); ++s) {
      const std::span<std::byte> copied = snapshot_.boxes()[s].bytes;
      if (copied.empty()) continue;
      // Offsets are relative to the pointer of the source, which may point before its first byte.
      const auto data = reinterpret_cast<std::uintptr_t>(copied.data()) - whole[s].shift;
      job.sources[s].data = reinterpret_cast<const void*>(data);  // NOLINT(performance-no-int-to-ptr)
    }
  });
  return true;
}

/// Collective.
void AsyncSaver::make_room(Job& job, const SnapshotParts& parts) {
  comm::agree(communicator_, "make room for a snapshot", [&] {
    const auto start = Clock::now();
    snapshot_.reserve(snapshot_bytes(parts));
    job.stall.prepare_seconds = seconds_since(start);
    snapshot_.place(parts);
  });
}

/// Rank-local: the ranks agree on a failure later, in the background.
void AsyncSaver::copy(Job& job) noexcept {
  const auto start = Clock::now();
  try {
    snapshot_.copy();
  } catch (...) {
    job.copy_failure = std::current_exception();
  }
  job.stall.copy_seconds = seconds_since(start);
  job.stall.snapshot_bytes = snapshot_.copied_bytes();
  if (job.first_late == 0) {
    job.stall.seconds = seconds_since(job.began);
    job.state->release_sources();
  }
  snapshot_.end_copy();  // now the background owns the job
}

/// Rank-local, in the background.
void AsyncSaver::wait_for_copy(std::span<const std::byte> bytes) const {
  const auto liveness = communicator_.liveness();
  while (!snapshot_.wait_for(bytes, kLongestNap)) {
    if (liveness) liveness->worked();
  }
}

/// Collective, in the background: before the first round or, without direct runs, before the snapshot is used at all.
void AsyncSaver::agree_on_copy(const Job& job) {
  wait_for_copy({});
  comm::agree(communicator_, "copy the state", [&] {
    if (job.copy_failure) std::rethrow_exception(job.copy_failure);
  });
}

void AsyncSaver::prepare(const std::filesystem::path& storage, std::span<const Source> state) {
  if (!why_not_.empty()) return;
  run_call(communicator_, std::nullopt, "plan", [&] {
    const PartSources saved(communicator_, options_, state);
    state = saved.get();
    Job job;
    job.directory = storage;
    Call call(communicator_, job.clock);
    const bool is_on_device = communicator_.max(has_device_memory(state) ? 1 : 0) != 0;
    if (saver_.planner.choose_engine_for(storage).traits.uses_mpi_io) return;
    if (saver_.planner.is_coding() && !is_on_device) {
      take_whole(job, state);
      return;
    }
    const std::uint64_t first = plan_to_fit(job, state, call);
    if (is_on_device && first != 0) return;
    comm::agree(communicator_, "make room for snapshots", [&] {
      const SavePlan& files = *job.planned->files;
      const std::vector<plan::MemorySpan> spans = files.memory_from(first);
      snapshot_.reserve(snapshot_bytes({job.planned->memory, spans, files.memory_places()}));
    });
  });
}

/// The background part of a save, or the whole of a synchronous save.
void AsyncSaver::finish(Job& job) noexcept {
  Report report;
  std::exception_ptr failure;
  try {
    const os::AccessScope access(access_);
    const ProgressScope progress(options_.progress, job.state->step());
    run_call(communicator_, std::nullopt, "save", [&] { report = write(job); });
  } catch (...) {
    failure = std::current_exception();
    last_failure_ = text_of(failure);
  }
  if (!job.is_synchronous) snapshot_.wait_for_end();
  if (log_ != nullptr) add_to_log(job, report, failure);
  job.extras = {};
  job.planned.reset();
  tell_end(options_.async.on_done, {job.state->step(), job.state->was_cancelled()}, report, failure);
  job.state->finish(std::move(report), std::move(failure));
}

/// Rank-local, on rank 0.
void AsyncSaver::add_to_log(const Job& job, const Report& report, const std::exception_ptr& failure) noexcept {
  if (!failure) return log_->add_save(report, *job.root);
  try {
    std::rethrow_exception(failure);
  } catch (const Error& error) {
    const char* outcome = job.state->was_cancelled() ? format::kLogCancelled : outcome_of(error, communicator_);
    log_->add_error({format::kLogSave, job.state->step(), outcome, job.began}, error);
  } catch (...) {  // not possible: run_call() throws nothing but Error
  }
}

Report AsyncSaver::write(Job& job) {
  Report report;
  if (job.is_synchronous) {
    report = saver_.save(job.directory, job.state->step(), job.sources, job.extras, job.root);
    job.stall.seconds = seconds_since(job.began);
  } else {
    // Agrees first, unless files are written during the copy. Other ranks of the node may still be copying, and a
    // memory file system reserves space by zeroing it, which takes bandwidth and a processor from the copy.
    if (!job.has_direct_runs()) agree_on_copy(job);
    if (job.root != nullptr) saver_.writer.hold(*job.root);
    Call call(communicator_, job.clock);
    Hooks hooks(*this, job);
    const SaveRequest request{job.directory, job.state->step(), job.extras, job.root};
    if (job.planned) {
      const RoundMemory memory{job.planned->memory, &hooks, snapshot_.boxes(), job.first_late};
      report = saver_.writer.write(*job.planned, request, memory, call);
    } else {
      PlannedSave planned =
          saver_.planner.plan(job.directory, job.sources, job.extras.rank_blob, GatherFrom::kSources, call);
      saver_.planner.check_replicas(planned, job.sources, job.state->step(), call);
      report = saver_.writer.write(planned, request, {planned.memory, &hooks}, call);
    }
    if (job.stall.seconds == 0) job.stall.seconds = seconds_since(job.began);  // no round read the snapshot
  }
  add_stall(job, report);
  return report;
}

/// Collective.
void AsyncSaver::add_stall(const Job& job, Report& report) {
  Stall stall = job.stall;
  std::array<double, 5> seconds = {stall.seconds, stall.wait_seconds, stall.plan_seconds, stall.prepare_seconds,
                                   stall.copy_seconds};
  communicator_.all_reduce(seconds, comm::ReduceOp::kMax);
  stall = {seconds[0],
           seconds[1],
           seconds[2],
           seconds[3],
           seconds[4],
           communicator_.sum(stall.snapshot_bytes),
           communicator_.max(snapshot_.pool_bytes())};
  comm::agree(communicator_, "report", [&] {
    report.step = job.state->step();
    report.stall = stall;
    report.earlier_failure = std::exchange(last_failure_, {});
    if (!job.is_synchronous) return;
    report.warnings.push_back("the save was synchronous: " + job.why_not);
    base::warn_once(report.warnings.back());
  });
}

Report AsyncSaver::save(const Request& request) {
  wait();
  Report report;
  run_call(communicator_, std::nullopt, "save", [&] {
    const os::AccessScope access(access_);
    report = saver_.save(request.directory, request.step, request.state, request.extras, request.root);
    comm::agree(communicator_, "report", [&] { report.earlier_failure = std::exchange(last_failure_, {}); });
  });
  return report;
}

void AsyncSaver::release_memory() {
  wait();
  run_call(communicator_, std::nullopt, "release memory", [&] {
    comm::agree(communicator_, "release memory", [] {});
    saver_.planner.forget_plan();
    windows_.pool.reset();
    snapshot_.release();
  });
}

}  // namespace cairn::checkpoint
