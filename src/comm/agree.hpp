// The rule that no rank leaves a collective alone.
//
// Rank-local work inside a collective step goes through agree(): what it throws on some ranks is collected, and the same
// Error is thrown on all. What all ranks should have been given alike is compared by agree_on_values().
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "cairn/error.hpp"
#include "comm/communicator.hpp"

namespace cairn::comm {

/// An Error that all ranks of the communicator throw at the same place: who catches it may go on collectively.
class AgreedError : public Error {
 public:
  using Error::Error;
};

/// Collective. Runs `work` on this rank; when it threw on any rank, throws on all ranks one AgreedError whose kind and text are
/// those of the lowest failing rank, with " (rank 3)" or " (ranks 3, 5 and 2 more)" appended when the group has more than
/// one rank, and `step` named in front when `work` threw something else than Error. Requires: `work` does not
/// communicate on `communicator`.
void agree(Communicator& communicator, const std::string& step, const std::function<void()>& work);

/// Collective. As agree(), where only `root` works; its result is shared by the caller.
void agree_on_root(Communicator& communicator, const std::string& step, int root, const std::function<void()>& work);

/// What every rank was given, in words.
struct NamedValue {
  std::string name;
  std::string value;
};

/// Collective. Throws AgreedError(kUsage) on all ranks when a value is not the same on all: "option 'block_bytes' differs
/// between the ranks: ...". `what` is "option" or the like. `values` runs in an agreed step, and gives the same names in
/// the same order everywhere. One reduction when all is well.
void agree_on_values(Communicator& communicator, const std::string& what,
                     const std::function<std::vector<NamedValue>()>& values);

}  // namespace cairn::comm
