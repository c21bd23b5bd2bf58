// A thread for calls of MPI that wait for other ranks and that MPI gives no way to leave: MPI_File_open, MPI_File_close.
//
// The rank waits for the thread as it waits for messages (comm/wait.hpp). When the ranks give each other up it leaves,
// and the thread stays in the call, maybe for ever: so a call owns all that it touches.
#pragma once

#include <functional>
#include <memory>
#include <thread>

#include "comm/communicator.hpp"

namespace cairn::io {

class LeavableCalls {
 public:
  /// Starts the thread; throws std::system_error where there can be no more. `liveness` may be null.
  explicit LeavableCalls(std::shared_ptr<comm::Liveness> liveness);
  /// A thread that was left goes on by itself.
  ~LeavableCalls();
  LeavableCalls(const LeavableCalls&) = delete;
  LeavableCalls& operator=(const LeavableCalls&) = delete;

  /// Returns when `call`, which must throw nothing, has returned; `what` names it in messages. Throws Error(kState)
  /// when the ranks gave each other up before; then no further call may be made.
  void run(std::function<void()> call, const char* what);

 private:
  struct Shared;
  static void work(Shared& shared);

  std::shared_ptr<comm::Liveness> liveness_;
  std::shared_ptr<Shared> shared_;  ///< with the thread
  bool was_left_ = false;
  std::thread thread_;
};

}  // namespace cairn::io
