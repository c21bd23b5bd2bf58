#include "checkpoint/call.hpp"

#include <exception>
#include <new>
#include <string>

#include "base/log.hpp"
#include "base/text.hpp"
#include "cairn/error.hpp"
#include "comm/mpi.hpp"
#include "format/safetensors.hpp"
#include "os/fault.hpp"
#include "os/limits.hpp"
#include "os/system_calls.hpp"

namespace cairn::checkpoint {
namespace {

constexpr std::size_t kNone = static_cast<std::size_t>(-1);

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

std::unique_ptr<comm::Communicator> watched_communicator(MPI_Comm given, const Options& options) {
  auto communicator = comm::duplicate_mpi(given, options.waiting);
  comm::agree(*communicator, "name the rank in the log", [&] {
    os::set_fault_rank(communicator->rank());
    base::set_log_rank(communicator->rank(), communicator->size());
  });
  return communicator;
}

Report report_of(const format::StoredCheckpoint& written, const EngineChoice& engine) {
  Report report;
  report.engine = engine.name;
  report.engine_reason = engine.reason;
  report.engine_hints = engine.hints;
  report.tensors = written.tensors.size();
  report.files = written.files.size();
  for (const auto& tensor : written.tensors) {
    report.bytes += format::tensor_bytes(tensor.dtype, tensor.shape, tensor.name);
  }
  return report;
}

void run_call(comm::Communicator& communicator, std::optional<comm::CallName> name, const char* phase,
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
    fail_alone(communicator, "out of memory (std::bad_alloc)" + os::memory_note());
  } catch (const std::exception& error) {
    fail_alone(communicator, base::printable(error.what(), base::kForeignTextBytes));
  }
}

}  // namespace cairn::checkpoint
