#include "comm/mpi_communicator.hpp"

#include <fmt/core.h>

#include <cstdio>
#include <cstdlib>
#include <exception>

#include "cairn/error.hpp"
#include "comm/mpi.hpp"
#include "comm/mpi_call.hpp"

namespace cairn::comm {
namespace internal {
namespace {

class MpiRequest final : public Request {
 public:
  /// `expected_bytes` is checked on receives only: a send has no count in its status.
  MpiRequest(std::string what, bool is_receive, std::uint64_t expected_bytes)
      : what_(std::move(what)), is_receive_(is_receive), expected_bytes_(expected_bytes) {}

  ~MpiRequest() override {
    if (request_ == MPI_REQUEST_NULL) return;
    fmt::print(stderr, "cairn: error: {} was abandoned before it was complete{}\n", what_,
               std::uncaught_exceptions() > 0 ? ", by an exception" : "");
    std::fflush(stderr);
    std::abort();
  }
  MpiRequest(const MpiRequest&) = delete;
  MpiRequest& operator=(const MpiRequest&) = delete;

  bool test() override {
    if (request_ == MPI_REQUEST_NULL) return true;
    int complete = 0;
    MPI_Status status;
    finish(MPI_Test(&request_, &complete, &status), "MPI_Test", complete != 0, status);
    return complete != 0;
  }

  void wait() override {
    if (request_ == MPI_REQUEST_NULL) return;
    MPI_Status status;
    finish(MPI_Wait(&request_, &status), "MPI_Wait", true, status);
  }

  MPI_Request* handle() { return &request_; }

 private:
  void finish(int code, const char* call, bool complete, const MPI_Status& status) {
    int error_class = MPI_SUCCESS;
    if (code != MPI_SUCCESS) {
      MPI_Error_class(code, &error_class);
      request_ = MPI_REQUEST_NULL;  // MPI says nothing of a request after an error; it is not ours any more
    }
    if (error_class == MPI_ERR_TRUNCATE) {
      throw Error(ErrorKind::kInternal, fmt::format("{}: the message is larger than the buffer", what_));
    }
    if (code != MPI_SUCCESS) {
      throw Error(ErrorKind::kIo, fmt::format("{}: {} failed: {}", what_, call, mpi_error_text(code)));
    }
    if (!complete || !is_receive_) return;
    int count = 0;
    check_mpi(MPI_Get_count(&status, MPI_BYTE, &count), "MPI_Get_count");
    if (count < 0 || static_cast<std::uint64_t>(count) != expected_bytes_) {
      throw Error(ErrorKind::kInternal, fmt::format("{}: the message has {} bytes", what_, count));
    }
  }

  MPI_Request request_ = MPI_REQUEST_NULL;
  std::string what_;
  bool is_receive_;
  std::uint64_t expected_bytes_;
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

std::unique_ptr<Communicator> own(MPI_Comm comm) { return std::make_unique<MpiCommunicator>(comm); }

}  // namespace

MpiCommunicator::MpiCommunicator(MPI_Comm comm) : comm_(comm) {
  check_mpi(MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  check_mpi(MPI_Comm_rank(comm_, &rank_), "MPI_Comm_rank");
  check_mpi(MPI_Comm_size(comm_, &size_), "MPI_Comm_size");
}

MpiCommunicator::~MpiCommunicator() {
  if (comm_ != MPI_COMM_NULL && mpi_is_up()) MPI_Comm_free(&comm_);
}

std::unique_ptr<Request> MpiCommunicator::send(std::span<const std::byte> data, int to, int tag) {
  check_message(data.size(), to, tag);
  auto request = std::make_unique<MpiRequest>(
      fmt::format("send of {} bytes from rank {} to rank {} with tag {}", data.size(), rank_, to, tag), false,
      data.size());
  check_mpi(MPI_Isend(data.data(), to_count(data.size()), MPI_BYTE, to, tag, comm_, request->handle()), "MPI_Isend");
  return request;
}

std::unique_ptr<Request> MpiCommunicator::receive(std::span<std::byte> data, int from, int tag) {
  check_message(data.size(), from, tag);
  auto request = std::make_unique<MpiRequest>(
      fmt::format("receive of {} bytes on rank {} from rank {} with tag {}", data.size(), rank_, from, tag), true,
      data.size());
  check_mpi(MPI_Irecv(data.data(), to_count(data.size()), MPI_BYTE, from, tag, comm_, request->handle()), "MPI_Irecv");
  return request;
}

std::unique_ptr<Communicator> MpiCommunicator::duplicate() { return duplicate_mpi(comm_); }

std::unique_ptr<Communicator> MpiCommunicator::subgroup(int first, int last, int tag) {
  check_subgroup(first, last, tag);
  const Group all(comm_);
  const Group members(all, first, last);
  MPI_Comm created = MPI_COMM_NULL;
  check_mpi(MPI_Comm_create_group(comm_, members.get(), tag, &created), "MPI_Comm_create_group");
  return own(created);
}

std::unique_ptr<Communicator> MpiCommunicator::node() {
  MPI_Comm created = MPI_COMM_NULL;
  check_mpi(MPI_Comm_split_type(comm_, MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL, &created), "MPI_Comm_split_type");
  return own(created);
}

}  // namespace internal

std::unique_ptr<Communicator> duplicate_mpi(MPI_Comm parent) {
  if (!internal::mpi_is_up()) {
    throw Error(ErrorKind::kUsage, "MPI is not running: call MPI_Init before, and not after MPI_Finalize");
  }
  MPI_Comm created = MPI_COMM_NULL;
  internal::check_mpi(MPI_Comm_dup(parent, &created), "MPI_Comm_dup");
  return internal::own(created);
}

MPI_Comm native_handle(Communicator& communicator) {
  const auto* mpi = dynamic_cast<const internal::MpiCommunicator*>(&communicator);
  return mpi != nullptr ? mpi->handle() : MPI_COMM_NULL;
}

}  // namespace cairn::comm
