// Adam, sharded over the ranks (ZeRO stage 1): all parameters are end to end in one flat memory, and every rank has the
// master weights and moments of one slice. A step sums the gradients of a slice on its rank, and shares new weights.
#pragma once

#include <mpi.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "model.hpp"

namespace trainer {

class ShardedAdam {
 public:
  /// Rank-local: the slice of this rank, with the initial weights.
  ShardedAdam(MPI_Comm communicator, const Model& model, std::uint64_t seed);

  /// Collective: makes update number `step` (1, 2, ...) from the gradients of all ranks, summed and divided by `batch`.
  void update(Model& model, std::span<const Fixed> gradient, std::uint64_t batch, std::uint64_t step);
  /// Collective: rounds the master weights of all ranks and puts them into `model` on every rank.
  void publish(Model& model) const;
  /// Collective: on rank 0, a digest (FNV-1a) of weights, master weights and moments in flat order. The digest does not
  /// depend on the number of ranks.
  [[nodiscard]] std::uint64_t digest(const Model& model) const;

  std::size_t first = 0;  ///< begin of this rank's slice in the flat memory
  std::vector<float> master, exp_avg, exp_avg_sq;

 private:
  MPI_Comm communicator_;
  std::vector<int> counts_, starts_;  ///< size and begin of every rank's slice
};

}  // namespace trainer
