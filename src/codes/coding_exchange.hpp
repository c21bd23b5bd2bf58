// What ranks tell each other to code moments: scales that several share, and blocks that no rank holds whole.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "codes/coding_plan.hpp"
#include "codes/device_memory.hpp"
#include "codes/piece_coder.hpp"
#include "comm/communicator.hpp"

namespace cairn::codes {

// Scales that several ranks share: each rank measures its pieces, homes of tensors bring the statistics together and
// give back to each piece what it needs. The homes provide the scales themselves, each tensor's whole.

/// What a rank found in one of its pieces.
struct MeasuredPiece {
  std::uint32_t tensor = 0;
  Box box;
  quant::Statistics statistics;
};

/// Collective. Replaces the statistics of each piece by those of the whole tensor; returns the scales that this rank is
/// home of.
std::vector<CodedPiece> exchange_scales(comm::Communicator& communicator, const CodingPlan& plan,
                                        std::span<MeasuredPiece> pieces);

// Blocks of a codec that no rank holds whole: their elements meet at a home, which codes them.
//
// A home has neighbouring blocks, so that their codes are few boxes: 64 rows of a matrix whose rows are whole blocks,
// else 1024 blocks of the flattened tensor. Elements travel as they are, both moments, in rounds of bounded size.

/// The boxes that a plan's pieces refer to.
struct SplitMemory {
  const MomentBoxes& boxes;
  DeviceMemory& device;  ///< for those that it has
};

/// Collective. What this rank is home of, coded. `errors` get what decoding makes of them. Throws Error(kState) for
/// values that the codec refuses.
std::vector<CodedPiece> code_split_blocks(comm::Communicator& communicator, const CodingPlan& plan,
                                          const SplitMemory& memory, Measuring measuring, ErrorsByTensor& errors);

}  // namespace cairn::codes
