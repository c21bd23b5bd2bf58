// A communicator on MPI. Owns its MPI_Comm; errors return; every size is 64-bit and cut into chunks of at most
// internal::chunk_bytes(). Collectives that allocate agree on the success of that before data moves, so that a rank
// without memory does not leave the others alone.
#pragma once

#include <mpi.h>

#include "comm/communicator.hpp"

namespace cairn::comm::internal {

class MpiCommunicator final : public Communicator {
 public:
  /// Takes the ownership of `comm`.
  explicit MpiCommunicator(MPI_Comm comm);
  ~MpiCommunicator() override;

  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return size_; }
  [[nodiscard]] MPI_Comm handle() const { return comm_; }

  void barrier() override;
  void broadcast(std::span<std::byte> data, int root) override;
  void all_reduce(std::span<std::uint64_t> values, ReduceOp op) override;
  void all_reduce(std::span<double> values, ReduceOp op) override;
  std::vector<base::Bytes> all_to_all(std::vector<base::Bytes> outgoing) override;
  std::vector<base::Bytes> all_gather(std::span<const std::byte> mine) override;
  std::vector<base::Bytes> gather(std::span<const std::byte> mine, int root) override;
  std::unique_ptr<Request> send(std::span<const std::byte> data, int to, int tag) override;
  std::unique_ptr<Request> receive(std::span<std::byte> data, int from, int tag) override;
  std::unique_ptr<Communicator> duplicate() override;
  std::unique_ptr<Communicator> subgroup(int first, int last, int tag) override;
  std::unique_ptr<Communicator> node() override;

 private:
  /// Collective: allocates by `allocate` on this rank; throws on all ranks when it failed on any. The largest of each of
  /// `values` over the ranks is put back.
  template <class Allocate>
  void agree_on_memory(std::span<std::uint64_t> values, Allocate allocate);

  void all_to_all_flat(const std::vector<base::Bytes>& outgoing, std::vector<base::Bytes>& incoming,
                       std::span<std::byte> send_buffer, std::span<std::byte> receive_buffer);
  void all_to_all_pairwise(const std::vector<base::Bytes>& outgoing, std::vector<base::Bytes>& incoming);
  void gather_flat(std::span<const std::byte> mine, int root, std::vector<base::Bytes>& parts,
                   std::span<std::byte> flat);
  void gather_in_chunks(std::span<const std::byte> mine, int root, std::vector<base::Bytes>& parts);

  MPI_Comm comm_;
  int rank_ = 0;
  int size_ = 0;
};

}  // namespace cairn::comm::internal
