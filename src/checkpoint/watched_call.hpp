// A call that ends when the ranks stop moving: a stopped rank or a dead storage target gives no error by itself.
#pragma once

#include <functional>
#include <memory>

#include "checkpoint/phases.hpp"
#include "comm/agree.hpp"
#include "comm/communicator.hpp"
#include "os/work.hpp"

namespace cairn::checkpoint {

/// While it lives, silence of all ranks counts, and every phase that `clock` begins, and every operation on a file that
/// this thread ends, is progress. How long it may last, and what happens then, belongs to the communicator. Simulated ranks
/// are not watched: their waits end by themselves.
class WatchedCall {
 public:
  WatchedCall(comm::Communicator& communicator, PhaseClock& clock) : WatchedCall(communicator) {
    clock_ = &clock;
    clock_->watch(liveness_);
  }
  explicit WatchedCall(comm::Communicator& communicator) : liveness_(communicator.liveness()) {
    if (!liveness_) return;
    on_work_ = [this] { liveness_->worked(); };
    before_ = os::set_work_observer(&on_work_);
    liveness_->begin_call();
  }
  ~WatchedCall() {
    if (clock_ != nullptr) clock_->watch(nullptr);
    if (!liveness_) return;
    liveness_->end_call();
    os::set_work_observer(before_);
  }
  WatchedCall(const WatchedCall&) = delete;
  WatchedCall& operator=(const WatchedCall&) = delete;

 private:
  std::shared_ptr<comm::Liveness> liveness_;
  PhaseClock* clock_ = nullptr;
  std::function<void()> on_work_;
  const std::function<void()>* before_ = nullptr;
};

/// Collective: a call of the public interface. Throws Error(kState) at once when the communicator is dead. What `work`
/// throws that is no Error could not be agreed on: then this rank tells the others, and all throw the same Error(kState).
void run_call(comm::Communicator& communicator, const char* phase, comm::Work work);

}  // namespace cairn::checkpoint
