// The look at the storage before the first byte of a save (Options::preflight).
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "checkpoint/save_content.hpp"
#include "checkpoint/save_plan.hpp"
#include "comm/agree.hpp"
#include "comm/communicator.hpp"
#include "planning/preflight.hpp"
#include "root/commit.hpp"

namespace cairn::checkpoint {

/// A save that was refused before its first byte, since it could not succeed.
class RefusedSave : public comm::AgreedError {
 public:
  explicit RefusedSave(const comm::AgreedError& error) : comm::AgreedError(error) {}
};

struct Preflight {
  const PlannedSave& planned;
  const SaveRequest& request;
  const root::CommitContent& content;
  const Options& options;
  /// On rank 0, for a save into a root: makes room as a save would at its end (true: by the rules of retention) or at
  /// its begin (false).
  std::function<void(bool prunes)> make_room = {};
};

/// Rank-local: what a save will write. Small files are known on rank 0 only.
planning::SaveNeeds needs_of_save(const Preflight& look);

/// Collective, one reduction; writes nothing, but for `make_room`. Each rank checks its permission and its limit of
/// file sizes, rank 0 the room. Throws RefusedSave (kIo) with errno and figures; adds a warning where want of room is
/// not certain.
void refuse_hopeless(comm::Communicator& communicator, const Preflight& look, std::vector<std::string>& warnings);

}  // namespace cairn::checkpoint
