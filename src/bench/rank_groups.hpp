// Work for the first few ranks while the others wait asleep.
//
// A rank that waits in an MPI call spins, and takes the cores of those that are being measured. Here it sleeps, and looks
// for a message a few hundred times a second.
#pragma once

#include <functional>
#include <map>
#include <memory>

#include "comm/communicator.hpp"

namespace cairn::bench {

class RankGroups {
 public:
  /// `world` must outlive the object.
  explicit RankGroups(comm::Communicator& world) : world_(world) {}

  [[nodiscard]] comm::Communicator& world() { return world_; }

  /// Collective over the world. The first `ranks` ranks run `work` on a communicator of their own (kept for the next call),
  /// the others sleep until it is done. An Error that all ranks of the group throw is thrown by every rank of the world.
  void run(int ranks, const std::function<void(comm::Communicator&)>& work);

 private:
  void work_and_tell(int ranks, const std::function<void(comm::Communicator&)>& work);
  void wait_asleep();

  comm::Communicator& world_;
  std::map<int, std::unique_ptr<comm::Communicator>> groups_;
};

}  // namespace cairn::bench
