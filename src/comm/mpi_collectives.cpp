// The collectives of the MPI communicator, correct beyond MPI's int counts.
//
// all_to_all has two algorithms:
//   - flat: one MPI_Ialltoallv, for small dense patterns, where MPI's algorithms are fast;
//   - pairwise: one message (or several chunks) for each pair of ranks with bytes to send; for large patterns, and for
//     sparse ones, in which MPI_Ialltoallv would send empty messages to all ranks.
// The reduction that agrees on memory also agrees on the algorithm.

#include <algorithm>
#include <array>
#include <cstring>
#include <new>
#include <numeric>

#include "base/internal_error.hpp"
#include "cairn/error.hpp"
#include "comm/mpi_call.hpp"
#include "comm/mpi_communicator.hpp"
#include "comm/wait.hpp"
#include "os/fault.hpp"

namespace cairn::comm::internal {
namespace {

/// Above this many bytes on any rank, the copies into flat buffers cost more than MPI's own algorithms gain.
constexpr std::uint64_t kFlatBytes = 64ULL << 20;
/// Largest number of peers that the pairwise algorithm serves at a time.
constexpr int kPeersInFlight = 16;
/// Largest chunk of broadcasts and reductions.
constexpr std::uint64_t kLargestScratchBytes = 4ULL << 20;
constexpr std::size_t kMostValues = 3;

std::uint64_t flat_limit() { return std::min(kFlatBytes, chunk_bytes()); }

MPI_Op mpi_op(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum: return MPI_SUM;
    case ReduceOp::kMin: return MPI_MIN;
    case ReduceOp::kMax: return MPI_MAX;
    case ReduceOp::kXor: return MPI_BXOR;
    case ReduceOp::kOr: return MPI_BOR;
  }
  throw base::internal_error("unknown reduction");
}

std::uint64_t total_of(std::span<const std::uint64_t> sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), std::uint64_t{0});
}

std::uint64_t chunks_of(std::uint64_t bytes) { return bytes / chunk_bytes() + (bytes % chunk_bytes() != 0 ? 1 : 0); }

void copy_bytes(std::span<const std::byte> from, std::byte* into) {
  if (!from.empty()) std::memcpy(into, from.data(), from.size());
}

/// Parts placed end to end in a flat buffer, with int counts and displacements.
struct Flat {
  void make(const std::vector<base::Bytes>& parts) {
    std::uint64_t offset = 0;
    for (const base::Bytes& part : parts) {
      counts.push_back(to_count(part.size()));
      offsets.push_back(to_count(offset));
      offset += part.size();
    }
    bytes.resize(offset);
  }
  void pack(const std::vector<base::Bytes>& parts) {
    std::byte* at = bytes.data();
    for (const base::Bytes& part : parts) {
      copy_bytes(part, at);
      at += part.size();
    }
  }
  void unpack(std::vector<base::Bytes>& parts) const {
    std::span<const std::byte> rest = bytes;
    for (base::Bytes& part : parts) {
      copy_bytes(rest.first(part.size()), part.data());
      rest = rest.subspan(part.size());
    }
  }
  std::vector<int> counts;
  std::vector<int> offsets;
  base::Bytes bytes;
};

/// Owns an object that MPI uses during some calls. If a call throws, the object is leaked: MPI may still use it.
template <class T>
class KeptOnError {
 public:
  KeptOnError() = default;
  ~KeptOnError() {
    if (in_use_) static_cast<void>(object_.release());
  }
  KeptOnError(const KeptOnError&) = delete;
  KeptOnError& operator=(const KeptOnError&) = delete;
  void make() { object_ = std::make_unique<T>(); }
  T* operator->() const { return object_.get(); }
  template <class Work>
  void use(Work work) {
    in_use_ = true;
    work(*object_);
    in_use_ = false;
  }

 private:
  std::unique_ptr<T> object_;
  bool in_use_ = false;
};

}  // namespace

/// Memory for an exchange of parts of any size. MPI may use it until the wait for the exchange has succeeded; if the
/// wait throws, the memory is leaked (KeptOnError).
struct MpiCommunicator::Parts {
  std::vector<base::Bytes> outgoing;
  std::vector<base::Bytes> incoming;
  std::vector<std::uint64_t> out_sizes;
  std::vector<std::uint64_t> in_sizes;
  Flat out;
  Flat in;
  std::vector<MPI_Request> requests;

  /// Sends chunks in order; the receiver splits the data in the same way. `requests` must have room.
  void send(std::span<const std::byte> data, int to, MPI_Comm comm) {
    while (!data.empty()) {
      const auto part = data.first(std::min<std::uint64_t>(chunk_bytes(), data.size()));
      requests.push_back(MPI_REQUEST_NULL);
      check_mpi(MPI_Isend(part.data(), to_count(part.size()), MPI_BYTE, to, kCollectiveTag, comm, &requests.back()),
                "MPI_Isend");
      data = data.subspan(part.size());
    }
  }
  void receive(std::span<std::byte> data, int from, MPI_Comm comm) {
    while (!data.empty()) {
      const auto part = data.first(std::min<std::uint64_t>(chunk_bytes(), data.size()));
      requests.push_back(MPI_REQUEST_NULL);
      check_mpi(MPI_Irecv(part.data(), to_count(part.size()), MPI_BYTE, from, kCollectiveTag, comm, &requests.back()),
                "MPI_Irecv");
      data = data.subspan(part.size());
    }
  }
  void reserve_requests() {
    std::uint64_t most = 0;
    for (const std::uint64_t bytes : out_sizes) most += chunks_of(bytes);
    for (const std::uint64_t bytes : in_sizes) most += chunks_of(bytes);
    requests.reserve(most);
  }
};

void finish(Liveness* liveness, std::span<MPI_Request> requests, const char* call) {
  const int count = to_count(requests.size());
  const auto is_done = [&] {
    int done = 0;
    check_mpi(MPI_Testall(count, requests.data(), &done, MPI_STATUSES_IGNORE), call);
    return done != 0;
  };
  Wait wait(liveness, call);
  while (!is_done()) wait.pause();
}

template <class Allocate>
void MpiCommunicator::agree_on_memory(std::span<std::uint64_t> values, Allocate allocate) {
  std::array<std::uint64_t, kMostValues + 1> agreed{};
  std::uint64_t& failed = agreed[values.size()];
  try {
    os::fault_memory("memory.collective");
    allocate();
  } catch (...) {
    failed = 1;
  }
  std::copy(values.begin(), values.end(), agreed.begin());
  all_reduce(std::span(agreed.data(), values.size() + 1), ReduceOp::kMax);
  if (failed != 0) throw Error(ErrorKind::kInternal, "a rank has no memory for a collective's messages");
  std::copy_n(agreed.begin(), values.size(), values.begin());
}

std::uint64_t MpiCommunicator::scratch_for(std::uint64_t bytes) {
  const std::uint64_t wanted = std::min(bytes, kLargestScratchBytes);
  if (wanted > scratch_bytes_) {
    std::unique_ptr<std::byte[]> larger(new (std::nothrow) std::byte[kLargestScratchBytes]);
    std::uint64_t works = larger != nullptr ? 1 : 0;
    all_reduce(std::span(&works, 1), ReduceOp::kMin);
    if (works != 0) {
      scratch_ = std::move(larger);
      scratch_bytes_ = kLargestScratchBytes;
    }
  }
  return std::min(scratch_bytes_, chunk_bytes());
}

template <class T>
void MpiCommunicator::reduce(std::span<T> values, MPI_Datatype type, MPI_Op op) {
  liveness_->arrive();
  if (values.empty()) return;
  const std::uint64_t step = std::max<std::uint64_t>(1, scratch_for(values.size_bytes()) / sizeof(T));
  while (!values.empty()) {
    const auto part = values.first(std::min<std::uint64_t>(step, values.size()));
    std::memcpy(scratch_.get(), part.data(), part.size_bytes());
    MPI_Request request = MPI_REQUEST_NULL;
    check_mpi(MPI_Iallreduce(MPI_IN_PLACE, scratch_.get(), to_count(part.size()), type, op, comm_, &request),
              "MPI_Iallreduce");
    finish(liveness_.get(), request, "all_reduce");
    std::memcpy(part.data(), scratch_.get(), part.size_bytes());
    values = values.subspan(part.size());
  }
  if (owns_liveness_) liveness_->meet();
}

void MpiCommunicator::barrier() {
  liveness_->arrive();
  MPI_Request request = MPI_REQUEST_NULL;
  check_mpi(MPI_Ibarrier(comm_, &request), "MPI_Ibarrier");
  finish(liveness_.get(), request, "barrier");
  if (owns_liveness_) liveness_->meet();
}

void MpiCommunicator::broadcast(std::span<std::byte> data, int root) {
  check_root(root);
  liveness_->arrive();
  if (data.empty()) return;
  const std::uint64_t step = scratch_for(data.size());
  while (!data.empty()) {
    const auto part = data.first(std::min<std::uint64_t>(step, data.size()));
    if (rank_ == root) copy_bytes(part, scratch_.get());
    MPI_Request request = MPI_REQUEST_NULL;
    check_mpi(MPI_Ibcast(scratch_.get(), to_count(part.size()), MPI_BYTE, root, comm_, &request), "MPI_Ibcast");
    finish(liveness_.get(), request, "broadcast");
    if (rank_ != root) copy_bytes({scratch_.get(), part.size()}, part.data());
    data = data.subspan(part.size());
  }
}

void MpiCommunicator::all_reduce(std::span<std::uint64_t> values, ReduceOp op) {
  if (op != ReduceOp::kMin && op != ReduceOp::kMax) return reduce(values, MPI_UINT64_T, mpi_op(op));
  flip_top_bits(values);
  reduce(values, MPI_INT64_T, mpi_op(op));
  flip_top_bits(values);
}

void MpiCommunicator::all_reduce(std::span<double> values, ReduceOp op) {
  check_real_reduction(op);
  reduce(values, MPI_DOUBLE, mpi_op(op));
}

std::vector<base::Bytes> MpiCommunicator::all_to_all(std::vector<base::Bytes> outgoing) {
  check_outgoing(outgoing.size());
  liveness_->arrive();
  KeptOnError<Parts> parts;
  agree_on_memory({}, [&] {
    parts.make();
    for (const base::Bytes& part : outgoing) parts->out_sizes.push_back(part.size());
    parts->in_sizes.resize(outgoing.size());
    parts->incoming.resize(outgoing.size());
    parts->outgoing = std::move(outgoing);
  });
  parts.use([&](Parts& all) {
    MPI_Request request = MPI_REQUEST_NULL;
    check_mpi(
        MPI_Ialltoall(all.out_sizes.data(), 1, MPI_UINT64_T, all.in_sizes.data(), 1, MPI_UINT64_T, comm_, &request),
        "MPI_Ialltoall");
    finish(liveness_.get(), request, "all_to_all");
  });

  const std::uint64_t most_bytes = std::max(total_of(parts->out_sizes), total_of(parts->in_sizes));
  const auto partners =
      std::count_if(parts->out_sizes.begin(), parts->out_sizes.end(), [](std::uint64_t bytes) { return bytes != 0; });
  std::uint64_t shape[] = {most_bytes, static_cast<std::uint64_t>(partners)};
  agree_on_memory(shape, [&] {
    for (std::size_t from = 0; from < parts->incoming.size(); ++from)
      parts->incoming[from].resize(parts->in_sizes[from]);
    parts->reserve_requests();
    if (most_bytes > flat_limit()) return;
    parts->out.make(parts->outgoing);
    parts->in.make(parts->incoming);
  });
  const bool is_dense = shape[1] * 2 > parts->incoming.size();
  const bool is_flat = shape[0] <= flat_limit() && is_dense;
  parts.use([&](Parts& all) { is_flat ? all_to_all_flat(all) : all_to_all_pairwise(all); });
  return std::move(parts->incoming);
}

void MpiCommunicator::all_to_all_flat(Parts& parts) {
  parts.out.pack(parts.outgoing);
  MPI_Request request = MPI_REQUEST_NULL;
  check_mpi(
      MPI_Ialltoallv(parts.out.bytes.data(), parts.out.counts.data(), parts.out.offsets.data(), MPI_BYTE,
                     parts.in.bytes.data(), parts.in.counts.data(), parts.in.offsets.data(), MPI_BYTE, comm_, &request),
      "MPI_Ialltoallv");
  finish(liveness_.get(), request, "all_to_all");
  parts.in.unpack(parts.incoming);
}

void MpiCommunicator::all_to_all_pairwise(Parts& parts) {
  const auto me = static_cast<std::size_t>(rank_);
  copy_bytes(parts.outgoing[me], parts.incoming[me].data());
  // A message is sent and received in the same round of this loop, so a rank waits only for ranks in the same round.
  for (int first = 1; first < size_; first += kPeersInFlight) {
    parts.requests.clear();
    for (int distance = first; distance < std::min(size_, first + kPeersInFlight); ++distance) {
      const int from = (rank_ + size_ - distance) % size_;
      const int to = (rank_ + distance) % size_;
      parts.receive(parts.incoming[static_cast<std::size_t>(from)], from, comm_);
      parts.send(parts.outgoing[static_cast<std::size_t>(to)], to, comm_);
    }
    finish(liveness_.get(), parts.requests, "all_to_all");
  }
}

std::vector<base::Bytes> MpiCommunicator::all_gather(std::span<const std::byte> mine) {
  liveness_->arrive();
  const auto me = static_cast<std::size_t>(rank_);
  KeptOnError<Parts> parts;
  agree_on_memory({}, [&] {
    parts.make();
    parts->outgoing.emplace_back(mine.begin(), mine.end());
    parts->out_sizes = {mine.size()};
    parts->in_sizes.resize(static_cast<std::size_t>(size_));
    parts->incoming.resize(parts->in_sizes.size());
  });
  MPI_Request request = MPI_REQUEST_NULL;
  parts.use([&](Parts& all) {
    check_mpi(
        MPI_Iallgather(all.out_sizes.data(), 1, MPI_UINT64_T, all.in_sizes.data(), 1, MPI_UINT64_T, comm_, &request),
        "MPI_Iallgather");
    finish(liveness_.get(), request, "all_gather");
  });
  const bool is_flat = total_of(parts->in_sizes) <= flat_limit();
  agree_on_memory({}, [&] {
    for (std::size_t rank = 0; rank < parts->incoming.size(); ++rank)
      parts->incoming[rank].resize(parts->in_sizes[rank]);
    if (is_flat) parts->in.make(parts->incoming);
  });
  if (is_flat) {
    parts.use([&](Parts& all) {
      check_mpi(MPI_Iallgatherv(all.outgoing[0].data(), to_count(mine.size()), MPI_BYTE, all.in.bytes.data(),
                                all.in.counts.data(), all.in.offsets.data(), MPI_BYTE, comm_, &request),
                "MPI_Iallgatherv");
      finish(liveness_.get(), request, "all_gather");
    });
    parts->in.unpack(parts->incoming);
  } else {
    copy_bytes(mine, parts->incoming[me].data());
    for (int root = 0; root < size_; ++root) broadcast(parts->incoming[static_cast<std::size_t>(root)], root);
  }
  return std::move(parts->incoming);
}

std::vector<base::Bytes> MpiCommunicator::gather(std::span<const std::byte> mine, int root) {
  check_root(root);
  liveness_->arrive();
  const bool is_root = rank_ == root;
  KeptOnError<Parts> parts;
  agree_on_memory({}, [&] {
    parts.make();
    parts->outgoing.emplace_back(mine.begin(), mine.end());
    parts->out_sizes = {mine.size()};
    parts->in_sizes.resize(is_root ? static_cast<std::size_t>(size_) : 0);
    parts->incoming.resize(parts->in_sizes.size());
  });
  MPI_Request request = MPI_REQUEST_NULL;
  parts.use([&](Parts& all) {
    check_mpi(
        MPI_Igather(all.out_sizes.data(), 1, MPI_UINT64_T, all.in_sizes.data(), 1, MPI_UINT64_T, root, comm_, &request),
        "MPI_Igather");
    finish(liveness_.get(), request, "gather");
  });
  const std::uint64_t my_total = total_of(parts->in_sizes);
  std::uint64_t shape[] = {my_total};
  agree_on_memory(shape, [&] {
    for (std::size_t rank = 0; rank < parts->incoming.size(); ++rank)
      parts->incoming[rank].resize(parts->in_sizes[rank]);
    parts->reserve_requests();
    if (my_total <= flat_limit()) parts->in.make(parts->incoming);
  });
  parts.use([&](Parts& all) {
    if (shape[0] > flat_limit()) return gather_in_chunks(all, root);
    check_mpi(MPI_Igatherv(all.outgoing[0].data(), to_count(mine.size()), MPI_BYTE, all.in.bytes.data(),
                           all.in.counts.data(), all.in.offsets.data(), MPI_BYTE, root, comm_, &request),
              "MPI_Igatherv");
    finish(liveness_.get(), request, "gather");
    all.in.unpack(all.incoming);
  });
  return std::move(parts->incoming);
}

void MpiCommunicator::gather_in_chunks(Parts& parts, int root) {
  if (rank_ != root) {
    parts.send(parts.outgoing[0], root, comm_);
    return finish(liveness_.get(), parts.requests, "gather");
  }
  copy_bytes(parts.outgoing[0], parts.incoming[static_cast<std::size_t>(root)].data());
  for (int from = 0; from < size_; ++from) {
    if (from == root) continue;
    parts.requests.clear();
    parts.receive(parts.incoming[static_cast<std::size_t>(from)], from, comm_);
    finish(liveness_.get(), parts.requests, "gather");
  }
}

}  // namespace cairn::comm::internal
