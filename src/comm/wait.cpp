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
constexpr double kPatientSleepS = 50e-6;
constexpr double kPatientForS = 20e-3;

thread_local bool is_patient = false;

}  // namespace

PatientWaits::PatientWaits() { is_patient = true; }
PatientWaits::~PatientWaits() { is_patient = false; }

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
  if (++looks_ <= kQuickLooks && !is_patient) return;
  const double sleep_s = looks_ <= kQuickLooks + kYields && !is_patient ? 0 : look_again();
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
  const double waited_s = std::chrono::duration<double>(now - start_).count();
  if (is_patient) return waited_s < kPatientForS ? kPatientSleepS : kSleepS;
  return waited_s < kYieldForS ? 0 : kSleepS;
}

}  // namespace cairn::comm
