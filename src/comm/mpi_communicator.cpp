#include "comm/mpi_communicator.hpp"

#include <fmt/core.h>

#include <array>
#include <cmath>
#include <cstdlib>
#include <exception>
#include <functional>
#include <new>
#include <utility>

#include "base/log.hpp"
#include "cairn/error.hpp"
#include "comm/agree.hpp"
#include "comm/mpi.hpp"
#include "comm/mpi_call.hpp"
#include "comm/mpi_parent.hpp"
#include "comm/wait.hpp"
#include "os/fault.hpp"
#include "os/limits.hpp"
#include "os/process.hpp"

namespace cairn::comm {
namespace internal {
namespace {

/// The route and size of a message, for error messages.
struct Route {
  bool is_receive = false;
  std::uint64_t bytes = 0;
  int rank = 0;
  int peer = 0;
  int tag = 0;
};

class MpiRequest final : public Request {
 public:
  MpiRequest(std::shared_ptr<MpiLiveness> liveness, const Route& route)
      : liveness_(std::move(liveness)), route_(route) {}

  ~MpiRequest() override {
    if (request_ == MPI_REQUEST_NULL || liveness_->is_dead()) return;
    base::log_error(fmt::format("{} was abandoned before it was complete{}", what(),
                                std::uncaught_exceptions() > 0 ? ", by an exception" : ""));
    std::abort();
  }
  MpiRequest(const MpiRequest&) = delete;
  MpiRequest& operator=(const MpiRequest&) = delete;

  bool test() override {
    if (request_ == MPI_REQUEST_NULL) return true;
    int complete = 0;
    MPI_Status status;
    const int code = MPI_Test(&request_, &complete, &status);
    if (code != MPI_SUCCESS) fail(code);
    if (complete != 0 && route_.is_receive) check_size(status);
    return complete != 0;
  }

  void wait() override {
    Wait wait(liveness_.get(), route_.is_receive ? "receive" : "send");
    while (!test()) wait.pause();
  }

  MPI_Request* handle() { return &request_; }

 private:
  [[nodiscard]] std::string what() const {
    if (route_.is_receive) {
      return fmt::format("receive of {} bytes on rank {} from rank {} with tag {}", route_.bytes, route_.rank,
                         route_.peer, route_.tag);
    }
    return fmt::format("send of {} bytes from rank {} to rank {} with tag {}", route_.bytes, route_.rank, route_.peer,
                       route_.tag);
  }

  [[noreturn]] void fail(int code) {
    int error_class = MPI_SUCCESS;
    MPI_Error_class(code, &error_class);
    request_ = MPI_REQUEST_NULL;  // after an error the request is undefined and must not be used
    if (error_class == MPI_ERR_TRUNCATE) {
      throw Error(ErrorKind::kInternal, fmt::format("{}: the message is larger than the buffer", what()));
    }
    throw Error(ErrorKind::kIo, fmt::format("{}: MPI_Test failed: {}", what(), mpi_error_text(code)));
  }

  void check_size(const MPI_Status& status) const {
    int count = 0;
    check_mpi(MPI_Get_count(&status, MPI_BYTE, &count), "MPI_Get_count");
    if (count < 0 || static_cast<std::uint64_t>(count) != route_.bytes) {
      throw Error(ErrorKind::kInternal, fmt::format("{}: the message has {} bytes", what(), count));
    }
  }

  std::shared_ptr<MpiLiveness> liveness_;
  MPI_Request request_ = MPI_REQUEST_NULL;
  Route route_;
};

class Group {
 public:
  explicit Group(MPI_Comm comm) { check_mpi(MPI_Comm_group(comm, &group_), "MPI_Comm_group"); }
  Group(const Group& all, int first, int last) {
    int range[1][3] = {{first, last, 1}};
    check_mpi(MPI_Group_range_incl(all.group_, 1, range, &group_), "MPI_Group_range_incl");
  }
  ~Group() {
    if (group_ != MPI_GROUP_NULL) MPI_Group_free(&group_);
  }
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;
  [[nodiscard]] MPI_Group get() const { return group_; }

 private:
  MPI_Group group_ = MPI_GROUP_NULL;
};

constexpr std::uint64_t kScratchBytes = 64ULL << 10;

/// A rank's failure, as sent to the other ranks.
struct Told {
  int kind = static_cast<int>(ErrorKind::kInternal);
  int system_error = 0;
  std::array<char, 400> text{};

  void set(ErrorKind error_kind, const std::string& message) {
    kind = static_cast<int>(error_kind);
    message.copy(text.data(), text.size() - 1);
  }
  void set(const std::exception_ptr& failure, const char* step) {
    try {
      std::rethrow_exception(failure);
    } catch (const Error& error) {
      set(error.kind(), error.what());
      system_error = error.system_error();
    } catch (const std::bad_alloc&) {
      set(ErrorKind::kInternal, fmt::format("{}: out of memory (std::bad_alloc){}", step, os::memory_note()));
    } catch (const std::exception& error) {
      set(ErrorKind::kInternal, fmt::format("{}: {}", step, error.what()));
    }
  }
};

/// Collective over `created`: makes the object that owns `created`, on all ranks or on no rank. The ranks agree by
/// direct calls of MPI, since no object exists yet. If a rank fails, frees `created` and throws its Error on all ranks.
std::unique_ptr<MpiCommunicator> own(MPI_Comm created, Liveness* watch, const char* step,
                                     const std::function<std::unique_ptr<MpiCommunicator>(MPI_Comm)>& make) {
  int rank = 0;
  int size = 1;
  std::unique_ptr<MpiCommunicator> made;
  std::exception_ptr failure;
  static thread_local int lowest;  // these outlive an abandoned wait
  static thread_local Told told;
  told = {};
  try {
    check_mpi(MPI_Comm_rank(created, &rank), "MPI_Comm_rank");
    check_mpi(MPI_Comm_size(created, &size), "MPI_Comm_size");
    check_mpi(MPI_Comm_set_errhandler(created, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
    os::fault_memory("memory.communicator");
    made = make(created);
  } catch (...) {
    told.set(std::current_exception(), step);
    failure = std::current_exception();
  }
  lowest = failure ? rank : size;
  MPI_Request request = MPI_REQUEST_NULL;
  check_mpi(MPI_Iallreduce(MPI_IN_PLACE, &lowest, 1, MPI_INT, MPI_MIN, created, &request), "MPI_Iallreduce");
  finish(made ? made->liveness().get() : watch, request, step);
  if (lowest == size) return made;
  check_mpi(MPI_Ibcast(&told, static_cast<int>(sizeof told), MPI_BYTE, lowest, created, &request), "MPI_Ibcast");
  finish(made ? made->liveness().get() : watch, request, step);
  if (made) made->give_back();
  MPI_Comm_free(&created);
  throw Error(static_cast<ErrorKind>(told.kind), fmt::format("{} (rank {})", told.text.data(), lowest),
              {told.system_error, {}, lowest});
}

}  // namespace

MpiCommunicator::MpiCommunicator(MPI_Comm comm, std::shared_ptr<MpiLiveness> liveness, bool owns_liveness)
    : comm_(MPI_COMM_NULL),
      liveness_(std::move(liveness)),
      owns_liveness_(owns_liveness),
      scratch_(std::make_unique<std::byte[]>(kScratchBytes)),
      scratch_bytes_(kScratchBytes) {
  check_mpi(MPI_Comm_rank(comm, &rank_), "MPI_Comm_rank");
  check_mpi(MPI_Comm_size(comm, &size_), "MPI_Comm_size");
  comm_ = comm;
}

void MpiCommunicator::give_back() {
  comm_ = MPI_COMM_NULL;
  owns_liveness_ = false;
}

MpiCommunicator::~MpiCommunicator() {
  if (comm_ == MPI_COMM_NULL) return;
  const bool is_quiet = mpi_is_up() && (owns_liveness_ ? liveness_->close() : !liveness_->is_dead());
  if (is_quiet) {
    if (node_ != MPI_COMM_NULL) MPI_Comm_free(&node_);
    MPI_Comm_free(&comm_);
  } else if (liveness_->is_dead()) {
    static_cast<void>(scratch_.release());  // MPI may still use it
  }
}

void MpiCommunicator::close() noexcept {
  if (owns_liveness_ && comm_ != MPI_COMM_NULL && mpi_is_up()) static_cast<void>(liveness_->close());
}

void MpiCommunicator::know_hosts() {
  if (size_ == 1) return;
  std::string mine;
  agree(*this, "look up the name of the host", [&] { mine = os::host_name(); });
  Hosts hosts = exchange_hosts(*this, mine);
  agree(*this, "keep the names of the hosts",
        [&] { liveness_->know_hosts(std::make_shared<const Hosts>(std::move(hosts))); });
}

std::string_view MpiCommunicator::host_of(int rank) const {
  // A communicator of a part of the ranks numbers them differently.
  const auto& hosts = liveness_->hosts();
  return owns_liveness_ && hosts && hosts->are_several() ? hosts->of(rank) : std::string_view();
}

std::unique_ptr<Request> MpiCommunicator::send(std::span<const std::byte> data, int to, int tag) {
  check_message(data.size(), to, tag);
  liveness_->check();
  auto request = std::make_unique<MpiRequest>(liveness_, Route{false, data.size(), rank_, to, tag});
  check_mpi(MPI_Isend(data.data(), to_count(data.size()), MPI_BYTE, to, tag, comm_, request->handle()), "MPI_Isend");
  return request;
}

std::unique_ptr<Request> MpiCommunicator::receive(std::span<std::byte> data, int from, int tag) {
  check_message(data.size(), from, tag);
  liveness_->check();
  auto request = std::make_unique<MpiRequest>(liveness_, Route{true, data.size(), rank_, from, tag});
  check_mpi(MPI_Irecv(data.data(), to_count(data.size()), MPI_BYTE, from, tag, comm_, request->handle()), "MPI_Irecv");
  return request;
}

/// Precedes a call that blocks in MPI: meet() returns when all ranks are about to make it. Throws if ranks gave up.
void MpiCommunicator::meet() {
  barrier();
  liveness_->hear();
}

std::unique_ptr<Communicator> MpiCommunicator::duplicate() {
  std::unique_ptr<MPI_Comm> created;
  agree(*this, "duplicate a communicator", [&] { created = std::make_unique<MPI_Comm>(MPI_COMM_NULL); });
  MPI_Request request = MPI_REQUEST_NULL;
  check_mpi(MPI_Comm_idup(comm_, created.get(), &request), "MPI_Comm_idup");
  try {
    finish(liveness_.get(), request, "duplicate a communicator");
  } catch (...) {
    static_cast<void>(created.release());  // MPI may still write there
    throw;
  }
  return own(*created, liveness_.get(), "duplicate a communicator", [&](MPI_Comm comm) {
    auto liveness = std::make_shared<MpiLiveness>(comm, liveness_->waiting());
    liveness->know_hosts(liveness_->hosts());
    return std::make_unique<MpiCommunicator>(comm, std::move(liveness), true);
  });
}

/// meet() for the ranks [first, last]: in round r each rank notifies the rank 2^r places further on.
void MpiCommunicator::meet(int first, int last) {
  const int members = last - first + 1;
  static thread_local std::byte nothing[2];  // outlives an abandoned wait
  for (int distance = 1; distance < members; distance *= 2) {
    const int to = first + (rank_ - first + distance) % members;
    const int from = first + (rank_ - first + members - distance) % members;
    MPI_Request requests[] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL};
    check_mpi(MPI_Irecv(&nothing[0], 1, MPI_BYTE, from, kCollectiveTag, comm_, &requests[0]), "MPI_Irecv");
    check_mpi(MPI_Isend(&nothing[1], 1, MPI_BYTE, to, kCollectiveTag, comm_, &requests[1]), "MPI_Isend");
    finish(liveness_.get(), requests, "make a communicator");
  }
  liveness_->hear();
}

std::unique_ptr<Communicator> MpiCommunicator::subgroup(int first, int last, int tag) {
  check_subgroup(first, last, tag);
  liveness_->check();
  meet(first, last);
  const Group all(comm_);
  const Group members(all, first, last);
  MPI_Comm created = MPI_COMM_NULL;
  check_mpi(MPI_Comm_create_group(comm_, members.get(), tag, &created), "MPI_Comm_create_group");
  return own(created, liveness_.get(), "make a communicator",
             [&](MPI_Comm comm) { return std::make_unique<MpiCommunicator>(comm, liveness_, false); });
}

/// The first call blocks in MPI, after meet(). Later calls, also in background threads, do not block in MPI.
std::unique_ptr<Communicator> MpiCommunicator::node() {
  if (node_ == MPI_COMM_NULL) {
    meet();
    check_mpi(MPI_Comm_split_type(comm_, MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL, &node_), "MPI_Comm_split_type");
    check_mpi(MPI_Comm_set_errhandler(node_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  }
  static thread_local MPI_Comm created;  // outlives an abandoned wait
  MPI_Request request = MPI_REQUEST_NULL;
  check_mpi(MPI_Comm_idup(node_, &created, &request), "MPI_Comm_idup");
  finish(liveness_.get(), request, "make a communicator of the node");
  return own(created, liveness_.get(), "make a communicator of the node",
             [&](MPI_Comm comm) { return std::make_unique<MpiCommunicator>(comm, liveness_, false); });
}

}  // namespace internal

namespace {

/// Collective. If `check` throws on any rank, this function throws on all ranks.
std::unique_ptr<Communicator> duplicate_after(MPI_Comm parent, const Waiting& waiting,
                                              const std::function<void()>& check) {
  const MPI_Comm created = internal::duplicate_parent(parent, waiting);
  // With one more capture, std::function would allocate memory, and ranks could not agree on its failure.
  auto made = internal::own(created, nullptr, "duplicate a communicator", [&](MPI_Comm comm) {
    check();
    return std::make_unique<internal::MpiCommunicator>(comm, std::make_shared<internal::MpiLiveness>(comm, waiting),
                                                       true);
  });
  made->know_hosts();
  return made;
}

}  // namespace

std::unique_ptr<Communicator> duplicate_mpi(MPI_Comm parent) {
  return duplicate_after(parent, {0, OnSilence::kError, {}}, [] {});
}

std::unique_ptr<Communicator> duplicate_mpi(MPI_Comm parent, Waiting waiting) {
  std::exception_ptr refused;
  try {
    waiting.limit_s = Watchdog::seconds_from_environment(waiting.limit_s);
    if (!std::isfinite(waiting.limit_s) || waiting.limit_s < 0) {
      throw Error(
          ErrorKind::kUsage,
          fmt::format("Options::waiting: a limit of {} s; give a positive number of seconds, or 0 to wait for ever",
                      std::exchange(waiting.limit_s, 0)));
    }
  } catch (const Error&) {
    refused = std::current_exception();
  }
  return duplicate_after(parent, waiting, [&] {
    if (refused) std::rethrow_exception(refused);
  });
}

MPI_Comm native_handle(Communicator& communicator) {
  const auto* mpi = dynamic_cast<const internal::MpiCommunicator*>(&communicator);
  return mpi != nullptr ? mpi->handle() : MPI_COMM_NULL;
}

}  // namespace cairn::comm
