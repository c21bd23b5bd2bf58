// Blocks of a codec that no rank holds whole: their elements meet at a home, which codes them.
//
// A home has neighbouring blocks, so that their codes are few boxes: 64 rows of a matrix whose rows are whole blocks, else
// 1024 blocks of the flattened tensor. Elements travel as they are, both moments, in rounds of bounded size.
#pragma once

#include <vector>

#include "codes/coded_piece.hpp"
#include "codes/coding_errors.hpp"
#include "codes/coding_plan.hpp"
#include "comm/communicator.hpp"

namespace cairn::checkpoint {

/// Collective. What this rank is home of, coded. `memory`: the boxes that the plan's pieces refer to. `errors`
/// get what decoding makes of them. Throws Error(kState) for values that the codec refuses.
std::vector<CodedPiece> code_loose_blocks(comm::Communicator& communicator, const CodingPlan& plan,
                                          const MomentBoxes& memory, Measuring measuring, ErrorsByTensor& errors);

}  // namespace cairn::checkpoint
