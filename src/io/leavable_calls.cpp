#include "io/leavable_calls.hpp"

#include <condition_variable>
#include <mutex>
#include <utility>

#include "comm/wait.hpp"
#include "os/process.hpp"

namespace cairn::io {

struct LeavableCalls::Shared {
  std::mutex mutex;
  std::condition_variable changed;
  std::function<void()> call;  ///< empty: no call is in progress
  bool is_ending = false;
};

LeavableCalls::LeavableCalls(std::shared_ptr<comm::Liveness> liveness)
    : liveness_(std::move(liveness)), shared_(std::make_shared<Shared>()) {
  thread_ = os::start_thread([shared = shared_] { work(*shared); });
}

LeavableCalls::~LeavableCalls() {
  {
    const std::lock_guard lock(shared_->mutex);
    shared_->is_ending = true;
  }
  shared_->changed.notify_all();
  was_left_ ? thread_.detach() : thread_.join();
}

void LeavableCalls::run(std::function<void()> call, const char* what) {
  {
    const std::lock_guard lock(shared_->mutex);
    shared_->call = std::move(call);
  }
  shared_->changed.notify_all();
  const auto is_done = [&] {
    const std::lock_guard lock(shared_->mutex);
    return !shared_->call;
  };
  try {
    comm::Wait wait(liveness_.get(), what);
    while (!is_done()) wait.pause();
  } catch (...) {
    was_left_ = true;
    throw;
  }
}

void LeavableCalls::work(Shared& shared) {
  std::unique_lock lock(shared.mutex);
  for (;;) {
    shared.changed.wait(lock, [&] { return shared.call || shared.is_ending; });
    if (!shared.call) return;
    lock.unlock();
    shared.call();
    lock.lock();
    shared.call = nullptr;
  }
}

}  // namespace cairn::io
