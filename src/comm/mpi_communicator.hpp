// A communicator on MPI. Owns its MPI_Comm, with MPI_ERRORS_RETURN. Sizes are 64-bit; collectives transfer chunks of at
// most internal::chunk_bytes(). Collectives that allocate agree on success before data moves, so that a rank without
// memory does not leave other ranks waiting.
//
// Collectives start nonblocking MPI operations and wait for them. These operations do not use memory of the caller,
// because MPI may go on using memory after a wait was given up.
#pragma once

#include <mpi.h>

#include <memory>

#include "comm/communicator.hpp"
#include "comm/mpi_liveness.hpp"

namespace cairn::comm::internal {

class MpiCommunicator final : public Communicator {
 public:
  /// Rank-local. Owns `comm` once the constructor has returned.
  MpiCommunicator(MPI_Comm comm, std::shared_ptr<MpiLiveness> liveness, bool owns_liveness);
  ~MpiCommunicator() override;

  /// Rank-local: gives up ownership of the MPI_Comm and the liveness; for a new object that is not kept.
  void give_back();

  /// Collective: closes the liveness, if this communicator owns it. The destructor frees the rest.
  void close() noexcept;

  /// Collective: exchanges the names of hosts. Ranks without a limit take part, because limits may differ.
  void know_hosts();

  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return size_; }
  [[nodiscard]] MPI_Comm handle() const { return comm_; }
  [[nodiscard]] std::shared_ptr<Liveness> liveness() override { return liveness_; }

  [[nodiscard]] std::string_view host_of(int rank) const override;

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
  struct Parts;
  /// Collective: runs `allocate` on this rank; throws on all ranks if `allocate` threw on any rank. Replaces each of
  /// `values` by its maximum over the ranks.
  template <class Allocate>
  void agree_on_memory(std::span<std::uint64_t> values, Allocate allocate);
  /// Collective: enlarges scratch_ for `bytes` if needed and possible; returns a chunk size, the same on all ranks.
  std::uint64_t scratch_for(std::uint64_t bytes);
  template <class T>
  void reduce(std::span<T> values, MPI_Datatype type, MPI_Op op);

  void meet();
  void meet(int first, int last);
  void all_to_all_flat(Parts& parts);
  void all_to_all_pairwise(Parts& parts);
  void gather_in_chunks(Parts& parts, int root);

  MPI_Comm comm_;
  MPI_Comm node_ = MPI_COMM_NULL;  ///< made by the first call of node(), which returns duplicates
  int rank_ = 0;
  int size_ = 0;
  std::shared_ptr<MpiLiveness> liveness_;
  bool owns_liveness_;
  std::unique_ptr<std::byte[]> scratch_;
  std::uint64_t scratch_bytes_;
};

/// Waits until the requests are complete; `call` names them in messages. Rank-local.
void finish(Liveness* liveness, std::span<MPI_Request> requests, const char* call);
inline void finish(Liveness* liveness, MPI_Request& request, const char* call) {
  finish(liveness, std::span(&request, 1), call);
}

}  // namespace cairn::comm::internal
