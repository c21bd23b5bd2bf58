// Scales that several ranks share: each rank measures its pieces, homes of tensors bring the statistics together and give
// back to each piece what it needs. The homes provide the scales themselves, each tensor's whole.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "codes/coded_piece.hpp"
#include "codes/coding_plan.hpp"
#include "comm/communicator.hpp"

namespace cairn::checkpoint {

/// What a rank found in one of its pieces.
struct MeasuredPiece {
  std::uint32_t tensor = 0;
  Box box;
  quant::Statistics statistics;
};

/// Collective. Replaces the statistics of each piece by those of the whole tensor; returns the scales that this rank is home
/// of.
std::vector<CodedPiece> exchange_scales(comm::Communicator& communicator, const CodingPlan& plan,
                                        std::span<MeasuredPiece> pieces);

}  // namespace cairn::checkpoint
