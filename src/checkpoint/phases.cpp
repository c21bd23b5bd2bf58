#include "checkpoint/phases.hpp"

#include "comm/agree.hpp"

namespace cairn::checkpoint {
namespace {
constexpr std::size_t kNone = static_cast<std::size_t>(-1);
}  // namespace

PhaseClock::PhaseClock() : start_(Clock::now()), phase_start_(start_), current_(kNone) {}

void PhaseClock::begin(std::string_view name) {
  stop();
  if (liveness_) liveness_->progress(name, {});
  current_ = 0;
  while (current_ < count_ && rows_[current_].name != name) ++current_;
  if (current_ == count_) rows_.at(count_++).name = name;
  phase_start_ = Clock::now();
}

void PhaseClock::add_bytes(std::uint64_t bytes) {
  if (current_ != kNone) rows_[current_].bytes += bytes;
}

void PhaseClock::stop() {
  if (current_ == kNone) return;
  rows_[current_].seconds += std::chrono::duration<double>(Clock::now() - phase_start_).count();
  current_ = kNone;
}

double PhaseClock::seconds() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }

double PhaseClock::slowest_seconds(comm::Communicator& communicator) const {
  double slowest[] = {seconds()};
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

}  // namespace cairn::checkpoint
