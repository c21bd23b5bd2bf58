// Saving and resuming: all of this program that knows Cairn. This is the file to copy.
#pragma once

#include <cairn/checkpoint.hpp>

#include <cstdint>
#include <optional>
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
  /// Collective. When it returns, the state has been copied and may change; the checkpoint is made behind the training.
  /// Waits for the save before it, which finished() was not asked about in time.
  void save(std::uint64_t step, const State& state);
  /// Collective: the step of the save whose checkpoint is on storage by now, whole, and that was not told yet. kWait waits
  /// for it. Throws cairn::Error when it failed, the same on all ranks: earlier checkpoints are whole.
  enum class Ask { kNow, kWait };
  std::optional<std::uint64_t> finished(Ask ask);

 private:
  MPI_Comm communicator_;
  std::string run_;
  cairn::Checkpointer checkpointer_;
  std::optional<cairn::SaveTicket> ticket_;  ///< of the save that was not told yet
};

}  // namespace trainer
