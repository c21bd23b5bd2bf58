// Saving and resuming: all of this program that knows Cairn. This is the file to copy.
#pragma once

#include <cairn/checkpoint.hpp>

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "model.hpp"
#include "optimizer.hpp"

namespace trainer {

/// All that a training consists of beside its step. The data order needs nothing: it follows from the step.
struct State {
  Model& model;
  ShardedAdam& optimizer;
  std::mt19937_64& random;  ///< of this rank alone
};

class Checkpoints {
 public:
  /// Collective. `run` says how the training was set up; a checkpoint of another one is refused.
  Checkpoints(MPI_Comm communicator, const std::string& root, std::string run);

  /// Collective. Loads the newest checkpoint, whatever number of ranks saved it, and gives its step; without one, 0, and
  /// the state stays as it is. Throws cairn::Error, the same on all ranks.
  std::uint64_t resume(const State& state);
  /// Collective. When it returns, the checkpoint is on storage, whole. Throws cairn::Error, the same on all ranks: the
  /// training may go on, and earlier checkpoints are whole.
  void save(std::uint64_t step, const State& state);

 private:
  std::string run_;
  cairn::Checkpointer checkpointer_;
};

}  // namespace trainer
