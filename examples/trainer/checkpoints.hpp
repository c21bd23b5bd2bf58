// Saving and resuming: the only part of this program that uses Cairn. This is the file to copy.
#pragma once

#include <cairn/checkpoint.hpp>
#include <cairn/schedule.hpp>

#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "model.hpp"
#include "optimizer.hpp"

namespace trainer {

/// The state of a training run, apart from its step. The data order is not included: it follows from the step.
struct State {
  Model& model;
  ShardedAdam& optimizer;
  std::mt19937_64& random;  ///< this rank's generator
};

class Checkpoints {
 public:
  /// Collective. `run` describes the settings of the training; a checkpoint with a different `run` is refused.
  /// `every`: steps between saves; 0: none by steps.
  Checkpoints(MPI_Comm communicator, const std::string& root, std::string run, std::uint64_t every);

  /// Collective. Loads the newest checkpoint, saved by any number of ranks, and returns its step. Without a checkpoint,
  /// returns 0 and leaves the state unchanged. Throws cairn::Error, the same on all ranks.
  std::uint64_t resume(const State& state);
  /// Collective, after each step: whether to save, and whether to end. SIGUSR1 to any rank asks for a save, SIGTERM and
  /// the time limit of a job of Slurm for a save and the end.
  cairn::Due due(std::uint64_t step) { return schedule_.look(step); }
  /// Collective. On return, the state has been copied and may change; the checkpoint is made in the background.
  /// First waits for an earlier save whose step finished() has not returned yet.
  void save(std::uint64_t step, const State& state);
  enum class Ask { kNow, kWait };
  /// Collective. Returns the step of the last save, once, when its checkpoint is whole and on storage; kWait waits for
  /// that. Throws cairn::Error, the same on all ranks, if the save failed: earlier checkpoints are still whole.
  std::optional<std::uint64_t> finished(Ask ask);

 private:
  MPI_Comm communicator_;
  std::string run_;
  cairn::Schedule schedule_;
  cairn::Checkpointer checkpointer_;
  std::optional<cairn::SaveTicket> ticket_;  ///< ticket of a save whose step finished() has not returned yet
};

}  // namespace trainer
