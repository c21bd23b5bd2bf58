// A thread for MPI calls that wait for other ranks and cannot be left: MPI_File_open, MPI_File_close.
//
// The rank waits for the thread as it waits for messages (comm/wait.hpp). If the ranks give up, the rank leaves, and
// the thread stays in the call, perhaps for ever. So a call must own all data that it uses.
#pragma once

#include <functional>
#include <memory>
#include <thread>

#include "comm/communicator.hpp"

namespace cairn::io {

class LeavableCalls {
 public:
  /// Starts the thread; throws std::system_error if the system refuses another thread. `liveness` may be null.
  explicit LeavableCalls(std::shared_ptr<comm::Liveness> liveness);
  /// A thread that is still in a call keeps running.
  ~LeavableCalls();
  LeavableCalls(const LeavableCalls&) = delete;
  LeavableCalls& operator=(const LeavableCalls&) = delete;

  /// Returns when `call`, which must not throw, has returned; `what` names the call in messages. Throws Error(kState)
  /// if the ranks give up first; then run() must not be called again.
  void run(std::function<void()> call, const char* what);

 private:
  struct Shared;
  static void work(Shared& shared);

  std::shared_ptr<comm::Liveness> liveness_;
  std::shared_ptr<Shared> shared_;  ///< shared with the thread
  bool was_left_ = false;
  std::thread thread_;
};

}  // namespace cairn::io
