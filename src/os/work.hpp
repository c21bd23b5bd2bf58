// Who wants to know that work on files moves on: ranks that wait for this one (comm/liveness.hpp) must not give it up
// while it writes, or removes a large old checkpoint, for longer than their limit.
#pragma once

#include <functional>

namespace cairn::os {

namespace internal {
inline thread_local const std::function<void()>* work_observer = nullptr;
}

/// On this thread: called after every operation on a file that succeeded. Must not throw, and must outlive its use; null
/// ends that. Returns the one before.
inline const std::function<void()>* set_work_observer(const std::function<void()>* observer) {
  const auto* const before = internal::work_observer;
  internal::work_observer = observer;
  return before;
}

inline void work_moved() {
  if (internal::work_observer != nullptr) (*internal::work_observer)();
}

}  // namespace cairn::os
