#include "comm/mpi_parent.hpp"

#include <fmt/core.h>

#include <chrono>
#include <memory>
#include <new>
#include <string>

#include "cairn/error.hpp"
#include "comm/mpi_call.hpp"
#include "comm/wait.hpp"
#include "comm/watchdog.hpp"

namespace cairn::comm::internal {
namespace {

/// While this object lives, MPI returns error codes; by default MPI ends the job on an error.
class ErrorsReturn {
 public:
  explicit ErrorsReturn(MPI_Comm comm) : comm_(comm) {
    check_mpi(MPI_Comm_get_errhandler(comm_, &before_), "MPI_Comm_get_errhandler");
    check_mpi(MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  }
  ~ErrorsReturn() {
    MPI_Comm_set_errhandler(comm_, before_);
    MPI_Errhandler_free(&before_);  // only this reference
  }
  ErrorsReturn(const ErrorsReturn&) = delete;
  ErrorsReturn& operator=(const ErrorsReturn&) = delete;

 private:
  MPI_Comm comm_;
  MPI_Errhandler before_ = MPI_ERRHANDLER_NULL;
};

/// Key of the attribute that marks a communicator on which a call was abandoned. Operations that this call left in MPI
/// would match operations of the next call, which is in a different step but uses the same memory.
int given_up_key() {
  static const int key = [] {
    int made = MPI_KEYVAL_INVALID;
    check_mpi(MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, MPI_COMM_NULL_DELETE_FN, &made, nullptr),
              "MPI_Comm_create_keyval");
    return made;
  }();
  return key;
}

bool is_given_up(MPI_Comm parent) {
  void* value = nullptr;
  int is_set = 0;
  check_mpi(MPI_Comm_get_attr(parent, given_up_key(), &value, &is_set), "MPI_Comm_get_attr");
  return is_set != 0;
}

/// Rank-local: rejects arguments for which MPI would end the job or hang.
void check_parent(MPI_Comm parent) {
  if (!mpi_is_up()) {
    throw Error(ErrorKind::kUsage, "MPI is not running: call MPI_Init before, and not after MPI_Finalize");
  }
  if (parent == MPI_COMM_NULL) {
    throw Error(ErrorKind::kUsage,
                "the communicator is MPI_COMM_NULL; give one of the ranks that make this call, and leave it out on "
                "ranks that MPI_Comm_split or MPI_Comm_create gave none");
  }
  int is_inter = 0;
  check_mpi(MPI_Comm_test_inter(parent, &is_inter), "MPI_Comm_test_inter");
  if (is_inter != 0) {
    throw Error(ErrorKind::kUsage,
                "the communicator is an intercommunicator, of two groups of ranks; give one of a single group, such as "
                "MPI_Intercomm_merge makes of it");
  }
  if (is_given_up(parent)) {
    throw Error(ErrorKind::kState,
                "an earlier call on this communicator was given up, since some ranks did not come to it: ranks no "
                "longer agree on what comes next; end the process, or give another communicator");
  }
}

/// Waits for a call on the program's communicator; Error(kState) if it is not complete after the limit. Cairn sends no
/// messages on this communicator, so the missing ranks are unknown.
void finish_on_parent(MPI_Comm parent, MPI_Request& request, const Waiting& waiting) {
  const auto start = std::chrono::steady_clock::now();
  Wait wait(nullptr, "duplicate a communicator");
  for (;;) {
    int done = 0;
    check_mpi(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "MPI_Test");
    if (done != 0) return;
    wait.pause();
    const auto waited = std::chrono::duration<double>(std::chrono::steady_clock::now() - start);
    if (waiting.limit_s <= 0 || waited.count() <= waiting.limit_s) continue;
    const std::string text = fmt::format(
        "some ranks of the communicator did not come to this call within {:g} s, and all of them have to make it; look "
        "for stopped processes, or raise the limit (Options::waiting, CAIRN_WATCHDOG_S)",
        waiting.limit_s);
    check_mpi(MPI_Comm_set_attr(parent, given_up_key(), nullptr), "MPI_Comm_set_attr");
    carry_out(waiting, text);
    throw Error(ErrorKind::kState, text);
  }
}

}  // namespace

/// A rank that comes after others gave up can complete the reduction, but not the duplication: both waits are limited.
MPI_Comm duplicate_parent(MPI_Comm parent, const Waiting& waiting) {
  check_parent(parent);
  const ErrorsReturn errors_return(parent);
  static thread_local int has_memory;  // outlives an abandoned wait
  MPI_Request request = MPI_REQUEST_NULL;
  std::unique_ptr<MPI_Comm> created;
  try {
    created = std::make_unique<MPI_Comm>(MPI_COMM_NULL);
  } catch (const std::bad_alloc&) {  // reported below, where all ranks take part
  }
  has_memory = created ? 1 : 0;
  check_mpi(MPI_Iallreduce(MPI_IN_PLACE, &has_memory, 1, MPI_INT, MPI_MIN, parent, &request), "MPI_Iallreduce");
  finish_on_parent(parent, request, waiting);
  if (has_memory == 0) {
    throw Error(ErrorKind::kInternal,  // without figures, which differ between the ranks
                "duplicate a communicator: a rank is out of memory: take more hosts, fewer ranks on each, or a smaller "
                "memory budget (--memory)");
  }
  check_mpi(MPI_Comm_idup(parent, created.get(), &request), "MPI_Comm_idup");
  try {
    finish_on_parent(parent, request, waiting);
  } catch (...) {
    static_cast<void>(created.release());  // MPI may still write there
    throw;
  }
  return *created;
}

}  // namespace cairn::comm::internal
