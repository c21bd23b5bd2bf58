// The collectives of the MPI communicator, and how each stays correct beyond MPI's int counts.
//
// all_to_all has two ways. Flat: one MPI_Alltoallv, for small dense patterns, where MPI's algorithms pay. Pairwise: one
// message (or several chunks) for each pair that has bytes, for large or sparse patterns: MPI_Alltoallv would send
// empty messages to everybody. The ranks agree on the way by the reduction that also agrees on memory.
#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <numeric>
#include <stdexcept>

#include "cairn/error.hpp"
#include "comm/mpi_call.hpp"
#include "comm/mpi_communicator.hpp"

namespace cairn::comm::internal {
namespace {

constexpr int kCollectiveTag = kMaxTag + 1;
/// Above this many bytes on any rank the copies into flat buffers cost more than MPI_Alltoallv gains.
constexpr std::uint64_t kFlatBytes = 64ULL << 20;
constexpr std::uint64_t kTopBit = 1ULL << 63;
/// Peers that the pairwise way serves at a time.
constexpr int kPeersInFlight = 16;

std::uint64_t flat_limit() { return std::min(kFlatBytes, chunk_bytes()); }

MPI_Op mpi_op(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum: return MPI_SUM;
    case ReduceOp::kMin: return MPI_MIN;
    case ReduceOp::kMax: return MPI_MAX;
    case ReduceOp::kXor: return MPI_BXOR;
    case ReduceOp::kOr: return MPI_BOR;
  }
  throw Error(ErrorKind::kInternal, "unknown reduction");
}

template <class T>
void reduce_in_chunks(std::span<T> values, MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
  const std::uint64_t step = std::max<std::uint64_t>(1, chunk_bytes() / sizeof(T));
  while (!values.empty()) {
    const auto part = values.first(std::min<std::uint64_t>(step, values.size()));
    check_mpi(MPI_Allreduce(MPI_IN_PLACE, part.data(), to_count(part.size()), type, op, comm), "MPI_Allreduce");
    values = values.subspan(part.size());
  }
}

std::uint64_t total_of(std::span<const std::uint64_t> sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), std::uint64_t{0});
}

/// int counts and displacements of parts that lie end to end in a flat buffer.
struct FlatLayout {
  explicit FlatLayout(const std::vector<base::Bytes>& parts) {
    std::uint64_t offset = 0;
    for (const base::Bytes& part : parts) {
      counts.push_back(to_count(part.size()));
      offsets.push_back(to_count(offset));
      offset += part.size();
    }
  }
  std::vector<int> counts;
  std::vector<int> offsets;
};

void copy_from_flat(std::span<const std::byte> flat, std::vector<base::Bytes>& parts) {
  for (base::Bytes& part : parts) {
    if (!part.empty()) std::memcpy(part.data(), flat.data(), part.size());
    flat = flat.subspan(part.size());
  }
}

/// The messages of one window of peers; chunk by chunk in order, so that both ends cut alike.
class Transfers {
 public:
  explicit Transfers(MPI_Comm comm) : comm_(comm) {}
  void send(std::span<const std::byte> data, int to) {
    while (!data.empty()) {
      const auto part = data.first(std::min<std::uint64_t>(chunk_bytes(), data.size()));
      requests_.push_back(MPI_REQUEST_NULL);
      check_mpi(MPI_Isend(part.data(), to_count(part.size()), MPI_BYTE, to, kCollectiveTag, comm_, &requests_.back()),
                "MPI_Isend");
      data = data.subspan(part.size());
    }
  }
  void receive(std::span<std::byte> data, int from) {
    while (!data.empty()) {
      const auto part = data.first(std::min<std::uint64_t>(chunk_bytes(), data.size()));
      requests_.push_back(MPI_REQUEST_NULL);
      check_mpi(MPI_Irecv(part.data(), to_count(part.size()), MPI_BYTE, from, kCollectiveTag, comm_, &requests_.back()),
                "MPI_Irecv");
      data = data.subspan(part.size());
    }
  }
  void wait_all() {
    check_mpi(MPI_Waitall(to_count(requests_.size()), requests_.data(), MPI_STATUSES_IGNORE), "MPI_Waitall");
    requests_.clear();
  }

 private:
  MPI_Comm comm_;
  std::vector<MPI_Request> requests_;
};

}  // namespace

template <class Allocate>
void MpiCommunicator::agree_on_memory(std::span<std::uint64_t> values, Allocate allocate) {
  std::vector<std::uint64_t> agreed(values.begin(), values.end());
  agreed.push_back(0);
  try {
    allocate();
  } catch (const std::bad_alloc&) {
    agreed.back() = 1;
  } catch (const std::length_error&) {
    agreed.back() = 1;
  }
  all_reduce(std::span(agreed), ReduceOp::kMax);
  if (agreed.back() != 0) throw Error(ErrorKind::kInternal, "a rank has no memory for a collective's messages");
  std::copy(agreed.begin(), agreed.end() - 1, values.begin());
}

void MpiCommunicator::barrier() { check_mpi(MPI_Barrier(comm_), "MPI_Barrier"); }

void MpiCommunicator::broadcast(std::span<std::byte> data, int root) {
  check_root(root);
  while (!data.empty()) {
    const auto part = data.first(std::min<std::uint64_t>(chunk_bytes(), data.size()));
    check_mpi(MPI_Bcast(part.data(), to_count(part.size()), MPI_BYTE, root, comm_), "MPI_Bcast");
    data = data.subspan(part.size());
  }
}

void MpiCommunicator::all_reduce(std::span<std::uint64_t> values, ReduceOp op) {
  if (op != ReduceOp::kMin && op != ReduceOp::kMax) return reduce_in_chunks(values, MPI_UINT64_T, mpi_op(op), comm_);
  // MPICH 4.0.2 (Debian 12) compares MPI_UINT64_T as signed numbers. With the top bit flipped, the order of signed
  // numbers is that of the unsigned ones, on every MPI.
  for (std::uint64_t& value : values) value ^= kTopBit;
  reduce_in_chunks(values, MPI_INT64_T, mpi_op(op), comm_);
  for (std::uint64_t& value : values) value ^= kTopBit;
}

void MpiCommunicator::all_reduce(std::span<double> values, ReduceOp op) {
  check_real_reduction(op);
  reduce_in_chunks(values, MPI_DOUBLE, mpi_op(op), comm_);
}

std::vector<base::Bytes> MpiCommunicator::all_to_all(std::vector<base::Bytes> outgoing) {
  check_outgoing(outgoing.size());
  std::vector<std::uint64_t> out_sizes;
  for (const base::Bytes& part : outgoing) out_sizes.push_back(part.size());
  std::vector<std::uint64_t> in_sizes(outgoing.size());
  check_mpi(MPI_Alltoall(out_sizes.data(), 1, MPI_UINT64_T, in_sizes.data(), 1, MPI_UINT64_T, comm_), "MPI_Alltoall");

  const std::uint64_t most_bytes = std::max(total_of(out_sizes), total_of(in_sizes));
  const auto partners =
      std::count_if(out_sizes.begin(), out_sizes.end(), [](std::uint64_t bytes) { return bytes != 0; });
  std::uint64_t shape[] = {most_bytes, static_cast<std::uint64_t>(partners)};
  std::vector<base::Bytes> incoming(outgoing.size());
  base::Bytes send_buffer;
  base::Bytes receive_buffer;
  agree_on_memory(shape, [&] {
    for (std::size_t from = 0; from < incoming.size(); ++from) incoming[from].resize(in_sizes[from]);
    if (most_bytes > flat_limit()) return;
    send_buffer.resize(total_of(out_sizes));
    receive_buffer.resize(total_of(in_sizes));
  });
  const bool is_dense = shape[1] * 2 > outgoing.size();
  if (shape[0] <= flat_limit() && is_dense) {
    all_to_all_flat(outgoing, incoming, send_buffer, receive_buffer);
  } else {
    all_to_all_pairwise(outgoing, incoming);
  }
  return incoming;
}

void MpiCommunicator::all_to_all_flat(const std::vector<base::Bytes>& outgoing, std::vector<base::Bytes>& incoming,
                                      std::span<std::byte> send_buffer, std::span<std::byte> receive_buffer) {
  auto rest = send_buffer;
  for (const base::Bytes& part : outgoing) {
    if (!part.empty()) std::memcpy(rest.data(), part.data(), part.size());
    rest = rest.subspan(part.size());
  }
  const FlatLayout out(outgoing);
  const FlatLayout in(incoming);
  check_mpi(MPI_Alltoallv(send_buffer.data(), out.counts.data(), out.offsets.data(), MPI_BYTE, receive_buffer.data(),
                          in.counts.data(), in.offsets.data(), MPI_BYTE, comm_),
            "MPI_Alltoallv");
  copy_from_flat(receive_buffer, incoming);
}

void MpiCommunicator::all_to_all_pairwise(const std::vector<base::Bytes>& outgoing,
                                          std::vector<base::Bytes>& incoming) {
  const auto me = static_cast<std::size_t>(rank_);
  if (!outgoing[me].empty()) std::memcpy(incoming[me].data(), outgoing[me].data(), outgoing[me].size());
  // A message belongs to the same window on both ends, so a rank waits only for ranks that come to this window too.
  Transfers transfers(comm_);
  for (int first = 1; first < size_; first += kPeersInFlight) {
    for (int distance = first; distance < std::min(size_, first + kPeersInFlight); ++distance) {
      const int from = (rank_ + size_ - distance) % size_;
      const int to = (rank_ + distance) % size_;
      transfers.receive(incoming[static_cast<std::size_t>(from)], from);
      transfers.send(outgoing[static_cast<std::size_t>(to)], to);
    }
    transfers.wait_all();
  }
}

std::vector<base::Bytes> MpiCommunicator::all_gather(std::span<const std::byte> mine) {
  const std::uint64_t my_size = mine.size();
  std::vector<base::Bytes> parts(static_cast<std::size_t>(size_));
  std::vector<std::uint64_t> sizes(parts.size());
  check_mpi(MPI_Allgather(&my_size, 1, MPI_UINT64_T, sizes.data(), 1, MPI_UINT64_T, comm_), "MPI_Allgather");
  const std::uint64_t total = total_of(sizes);
  const bool is_flat = total <= flat_limit();
  base::Bytes flat;
  agree_on_memory({}, [&] {
    for (std::size_t rank = 0; rank < parts.size(); ++rank) parts[rank].resize(sizes[rank]);
    if (is_flat) flat.resize(total);
  });
  if (is_flat) {
    const FlatLayout layout(parts);
    check_mpi(MPI_Allgatherv(mine.data(), to_count(mine.size()), MPI_BYTE, flat.data(), layout.counts.data(),
                             layout.offsets.data(), MPI_BYTE, comm_),
              "MPI_Allgatherv");
    copy_from_flat(flat, parts);
    return parts;
  }
  if (!mine.empty()) std::memcpy(parts[static_cast<std::size_t>(rank_)].data(), mine.data(), mine.size());
  for (int root = 0; root < size_; ++root) broadcast(parts[static_cast<std::size_t>(root)], root);
  return parts;
}

std::vector<base::Bytes> MpiCommunicator::gather(std::span<const std::byte> mine, int root) {
  check_root(root);
  const std::uint64_t my_size = mine.size();
  const bool is_root = rank_ == root;
  std::vector<base::Bytes> parts(is_root ? static_cast<std::size_t>(size_) : 0);
  std::vector<std::uint64_t> sizes(parts.size());
  check_mpi(MPI_Gather(&my_size, 1, MPI_UINT64_T, sizes.data(), 1, MPI_UINT64_T, root, comm_), "MPI_Gather");
  std::uint64_t shape[] = {total_of(sizes)};
  base::Bytes flat;
  agree_on_memory(shape, [&] {
    for (std::size_t rank = 0; rank < parts.size(); ++rank) parts[rank].resize(sizes[rank]);
    if (is_root && shape[0] <= flat_limit()) flat.resize(shape[0]);
  });
  if (shape[0] <= flat_limit()) {
    gather_flat(mine, root, parts, flat);
  } else {
    gather_in_chunks(mine, root, parts);
  }
  return parts;
}

void MpiCommunicator::gather_flat(std::span<const std::byte> mine, int root, std::vector<base::Bytes>& parts,
                                  std::span<std::byte> flat) {
  const FlatLayout layout(parts);
  check_mpi(MPI_Gatherv(mine.data(), to_count(mine.size()), MPI_BYTE, flat.data(), layout.counts.data(),
                        layout.offsets.data(), MPI_BYTE, root, comm_),
            "MPI_Gatherv");
  copy_from_flat(flat, parts);
}

void MpiCommunicator::gather_in_chunks(std::span<const std::byte> mine, int root, std::vector<base::Bytes>& parts) {
  Transfers transfers(comm_);
  if (rank_ != root) {
    transfers.send(mine, root);
    transfers.wait_all();
    return;
  }
  if (!mine.empty()) std::memcpy(parts[static_cast<std::size_t>(root)].data(), mine.data(), mine.size());
  for (int from = 0; from < size_; ++from) {
    if (from == root) continue;
    transfers.receive(parts[static_cast<std::size_t>(from)], from);
    transfers.wait_all();
  }
}

}  // namespace cairn::comm::internal
