// How far the coded moments of all ranks are from those that were given, and whether that is too far.
#pragma once

#include <functional>
#include <vector>

#include "cairn/checkpoint.hpp"
#include "checkpoint/coding_errors.hpp"
#include "checkpoint/coding_plan.hpp"
#include "comm/communicator.hpp"

namespace cairn::checkpoint {

/// Collective. On rank 0 the errors of all tensors by section and name, elsewhere nothing. Throws Error(kState) naming the
/// tensor whose updates are wrong by more than `max_update_error` (0: no limit). `mine`: by the numbers of `tensor_of`.
std::vector<CodingError> collect_errors(comm::Communicator& communicator,
                                        const std::function<CodedTensor(std::uint32_t)>& tensor_of,
                                        const ErrorsByTensor& mine, double max_update_error);

}  // namespace cairn::checkpoint
