#include "checkpoint/phases.hpp"

namespace cairn::checkpoint {
namespace {
constexpr std::size_t kNone = static_cast<std::size_t>(-1);
constexpr std::size_t kMostPhases = 16;
}  // namespace

// With room for every phase there is: to begin one must not fail.
PhaseClock::PhaseClock() : start_(Clock::now()), phase_start_(start_), current_(kNone) { rows_.reserve(kMostPhases); }

void PhaseClock::begin(std::string_view name) {
  stop();
  if (liveness_) liveness_->progress(name, {});
  current_ = 0;
  while (current_ < rows_.size() && rows_[current_].name != name) ++current_;
  if (current_ == rows_.size()) rows_.push_back({std::string(name), 0, 0});
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
  for (const Row& row : rows_) {
    slowest.push_back(row.seconds);
    fastest.push_back(row.seconds);
    bytes.push_back(row.bytes);
  }
  communicator.all_reduce(slowest, comm::ReduceOp::kMax);
  communicator.all_reduce(fastest, comm::ReduceOp::kMin);
  communicator.all_reduce(bytes, comm::ReduceOp::kSum);
  std::vector<Phase> phases;
  for (std::size_t i = 0; i < rows_.size(); ++i) phases.push_back({rows_[i].name, slowest[i], fastest[i], bytes[i]});
  return phases;
}

}  // namespace cairn::checkpoint
