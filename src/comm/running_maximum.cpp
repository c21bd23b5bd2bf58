#include "comm/running_maximum.hpp"

#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "base/internal_error.hpp"
#include "comm/mpi.hpp"
#include "comm/mpi_call.hpp"
#include "comm/wait.hpp"

namespace cairn::comm {

/// Memory that MPI uses until the request is complete.
struct RunningMaximum::Running {
  explicit Running(std::size_t count) : mine(count), all(count) {}
  bool test() {
    int complete = 0;
    internal::check_mpi(MPI_Test(&request, &complete, MPI_STATUS_IGNORE), "MPI_Test");
    return complete != 0;
  }

  std::vector<std::int64_t> mine;
  std::vector<std::int64_t> all;
  MPI_Request request = MPI_REQUEST_NULL;
};

RunningMaximum::RunningMaximum(Communicator& communicator, std::size_t count)
    : communicator_(communicator), running_(std::make_unique<Running>(count)) {
  if (native_handle(communicator) == MPI_COMM_NULL) throw base::internal_error("a running maximum needs ranks of MPI");
}

RunningMaximum::~RunningMaximum() {
  constexpr double kPatienceS = 10;
  end(kPatienceS);
  if (is_running()) static_cast<void>(running_.release());
}

void RunningMaximum::begin(std::span<const std::int64_t> numbers) {
  if (is_running() || numbers.size() != running_->mine.size())
    throw base::internal_error("the maximum before is unread");
  std::ranges::copy(numbers, running_->mine.begin());
  internal::check_mpi(MPI_Iallreduce(running_->mine.data(), running_->all.data(), internal::to_count(numbers.size()),
                                     MPI_INT64_T, MPI_MAX, native_handle(communicator_), &running_->request),
                      "MPI_Iallreduce");
}

bool RunningMaximum::is_running() const { return running_->request != MPI_REQUEST_NULL; }

std::span<const std::int64_t> RunningMaximum::read() {
  const auto liveness = communicator_.liveness();
  Wait wait(liveness.get(), "all_reduce");
  while (!running_->test()) wait.pause();
  return running_->all;
}

void RunningMaximum::end(double seconds) noexcept {
  if (!is_running() || !internal::mpi_is_up() || communicator_.is_dead()) return;
  const auto until = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  try {
    while (!running_->test() && std::chrono::steady_clock::now() < until) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  } catch (const Error&) {  // the request cannot be used any more; its memory is kept
  }
}

}  // namespace cairn::comm
