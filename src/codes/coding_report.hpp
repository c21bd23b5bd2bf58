// The errors of all ranks' coded moments, and the check that they are not too large.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "cairn/checkpoint.hpp"
#include "codes/coding_plan.hpp"
#include "codes/piece_coder.hpp"
#include "comm/communicator.hpp"

namespace cairn::codes {

/// Filled on rank 0, empty on other ranks.
struct CodingReport {
  std::vector<CodingError> errors;  ///< errors of all tensors, with Measuring::kAll; in catalog order
  std::vector<CodingError>
      beyond_figures;   ///< tensors that are coded worse than their codec's figures, the worst first
  std::string warning;  ///< warning about beyond_figures; empty if there are none
};

/// Collective. Throws Error(kState) naming a tensor whose updates have a larger error than
/// Quantisation::max_update_error. `mine`: this rank's errors, by the tensor numbers that `tensor_of` accepts.
CodingReport collect_errors(comm::Communicator& communicator,
                            const std::function<CodedTensor(std::uint32_t)>& tensor_of, const ErrorsByTensor& mine,
                            const Quantisation& options);

void add_coding_report(CodingReport coding, Report& report);

}  // namespace cairn::codes
