#include "comm/wait.hpp"

#include <sched.h>

#include <thread>

#include "comm/communicator.hpp"

namespace cairn::comm {
namespace {

constexpr int kQuickLooks = 40;
constexpr int kYields = 20;
constexpr double kYieldForS = 50e-3;
constexpr double kSleepS = 1e-3;

}  // namespace

Wait::Wait(Liveness* liveness, const char* what) : liveness_(liveness), what_(what) {
  if (liveness_ != nullptr) liveness_->arrive();
}

Wait::~Wait() {
  if (liveness_ == nullptr) return;
  if (slow_) liveness_->end_wait();
  liveness_->progress();
}

void Wait::moved() {
  looks_ = 0;
  if (slow_ && liveness_ != nullptr) liveness_->end_wait();
  slow_ = false;
  if (liveness_ != nullptr) liveness_->progress();
}

void Wait::pause() {
  if (++looks_ <= kQuickLooks) return;
  const double sleep_s = looks_ <= kQuickLooks + kYields ? 0 : look_again();
  if (sleep_s > 0) {
    std::this_thread::sleep_for(std::chrono::duration<double>(sleep_s));
  } else {
    ::sched_yield();  // ranks may outnumber cores
  }
}

double Wait::look_again() {
  const auto now = Clock::now();
  if (!slow_) {
    start_ = now;
    slow_ = true;
    if (liveness_ != nullptr) liveness_->begin_wait();
  }
  if (liveness_ != nullptr) liveness_->poll(what_, now - start_);
  return std::chrono::duration<double>(now - start_).count() < kYieldForS ? 0 : kSleepS;
}

}  // namespace cairn::comm
