#include "checkpoint/call.hpp"

#include <exception>
#include <new>
#include <string>

#include "base/log.hpp"
#include "base/text.hpp"
#include "cairn/error.hpp"
#include "os/fault.hpp"
#include "os/system_calls.hpp"

namespace cairn::checkpoint {
namespace {

constexpr std::size_t kNone = static_cast<std::size_t>(-1);
constexpr std::size_t kForeignTextBytes = 300;

constexpr std::chrono::milliseconds kTellInterval{100};

thread_local ProgressScope* listener = nullptr;
thread_local int quiet_steps = 0;

[[noreturn]] void fail_alone(comm::Communicator& communicator, const std::string& why) {
  if (const auto liveness = communicator.liveness()) throw Error(ErrorKind::kState, liveness->fail(why));
  throw Error(ErrorKind::kInternal, why);
}

}  // namespace

PhaseClock::PhaseClock(Clock::time_point start) : start_(start), phase_start_(start), current_(kNone) {}

void PhaseClock::begin(std::string_view name) {
  stop();
  if (liveness_) liveness_->progress(name, {});
  current_ = 0;
  while (current_ < count_ && rows_[current_].name != name) ++current_;
  if (current_ == count_) rows_.at(count_++).name = name;
  phase_start_ = Clock::now();
  os::fault_phase(name);
}

void PhaseClock::add_bytes(std::uint64_t bytes) {
  if (current_ != kNone) rows_[current_].bytes += bytes;
}

void PhaseClock::stop() {
  if (current_ == kNone) return;
  rows_[current_].seconds += std::chrono::duration<double>(Clock::now() - phase_start_).count();
  current_ = kNone;
}

double PhaseClock::slowest_seconds(comm::Communicator& communicator) const {
  double slowest[] = {std::chrono::duration<double>(Clock::now() - start_).count()};
  communicator.all_reduce(slowest, comm::ReduceOp::kMax);
  return slowest[0];
}

std::vector<Phase> PhaseClock::reduce(comm::Communicator& communicator) const {
  std::vector<double> slowest;
  std::vector<double> fastest;
  std::vector<std::uint64_t> bytes;
  std::vector<Phase> phases;
  comm::agree(communicator, "report", [&] {
    for (const Row& row : rows()) {
      slowest.push_back(row.seconds);
      fastest.push_back(row.seconds);
      bytes.push_back(row.bytes);
      phases.push_back({std::string(row.name), 0, 0, 0});
    }
  });
  communicator.all_reduce(slowest, comm::ReduceOp::kMax);
  communicator.all_reduce(fastest, comm::ReduceOp::kMin);
  communicator.all_reduce(bytes, comm::ReduceOp::kSum);
  for (std::size_t i = 0; i < phases.size(); ++i) {
    phases[i].seconds_max = slowest[i];
    phases[i].seconds_min = fastest[i];
    phases[i].bytes = bytes[i];
  }
  return phases;
}

Call::Call(comm::Communicator& communicator, PhaseClock& clock)
    : communicator_(communicator), clock_(clock), liveness_(communicator.liveness()) {
  clock_.watch(liveness_);
  if (!liveness_) return;
  on_work_ = [this] { liveness_->worked(); };
  observer_before_ = os::set_work_observer(&on_work_);
  liveness_->begin_call();
}

Call::~Call() {
  clock_.watch(nullptr);
  if (!liveness_) return;
  liveness_->end_call();
  os::set_work_observer(observer_before_);
}

void Call::report(Report& report) {
  stop();
  report.phases = clock_.reduce(communicator_);
  report.seconds = clock_.slowest_seconds(communicator_);
}

namespace {

void run_named(comm::Communicator& communicator, std::optional<comm::CallName> name, const char* phase,
               comm::Work work) {
  if (const auto liveness = communicator.liveness()) liveness->check();
  const Call watched(communicator);
  try {
    communicator.progress(phase);
    if (name) comm::agree_on_call(communicator, *name);
    work();
  } catch (const Error&) {
    throw;
  } catch (const std::bad_alloc&) {
    fail_alone(communicator, "out of memory (std::bad_alloc)");
  } catch (const std::exception& error) {
    fail_alone(communicator, base::printable(error.what(), kForeignTextBytes));
  }
}

}  // namespace

void run_call(comm::Communicator& communicator, comm::CallName name, const char* phase, comm::Work work) {
  run_named(communicator, name, phase, work);
}

void run_call(comm::Communicator& communicator, const char* phase, comm::Work work) {
  run_named(communicator, std::nullopt, phase, work);
}

ProgressScope::ProgressScope(const Tell& tell, std::optional<std::uint64_t> step)
    : exceptions_(std::uncaught_exceptions()) {
  if (!tell || listener != nullptr) return;
  is_first_ = true;
  tell_ = &tell;
  last_.step = step;
  listener = this;
}

ProgressScope::~ProgressScope() {
  if (!is_first_) return;
  if (!is_told_ && std::uncaught_exceptions() == exceptions_) this->tell();
  listener = nullptr;
}

void ProgressScope::report(std::string_view phase, std::uint64_t done, std::uint64_t total) noexcept {
  const bool begins = phase != last_.phase || done < last_.bytes_done;
  if (begins && !is_told_) this->tell();  // the end of the previous phase
  last_.phase = phase;
  last_.bytes_done = done;
  last_.bytes_total = total;
  is_told_ = false;
  if (begins || Clock::now() - told_ >= kTellInterval) this->tell();
}

/// Calls the program's code in the middle of collective work, so exceptions must not end this rank's part.
void ProgressScope::tell() noexcept {
  is_told_ = true;
  if (tell_ == nullptr) return;
  std::string why;
  try {
    (*tell_)(last_);
    told_ = Clock::now();
    return;
  } catch (const std::exception& error) {
    why = base::printable(error.what(), kForeignTextBytes);
  } catch (...) {
    why = "an exception of unknown type";
  }
  tell_ = nullptr;
  base::log_warning("the progress callback threw, and is not called again in this call: " + why);
}

void report_progress(std::string_view phase, std::uint64_t done, std::uint64_t total) noexcept {
  if (quiet_steps == 0 && listener != nullptr) listener->report(phase, done, total);
}

std::uint64_t share_of_bytes(std::uint64_t bytes, std::uint64_t part, std::uint64_t whole) {
  if (part >= whole) return bytes;
  return static_cast<std::uint64_t>(static_cast<double>(bytes) * static_cast<double>(part) /
                                    static_cast<double>(whole));
}

QuietProgress::QuietProgress() { ++quiet_steps; }
QuietProgress::~QuietProgress() { --quiet_steps; }

}  // namespace cairn::checkpoint
