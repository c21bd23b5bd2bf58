// Messages between ranks that code moments: scales that several ranks share, and split blocks (coding_plan.hpp).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "codes/coding_plan.hpp"
#include "codes/device_memory.hpp"
#include "codes/piece_coder.hpp"
#include "comm/communicator.hpp"

namespace cairn::codes {

// Scales that several ranks share: each rank measures its pieces. Each tensor has a home, a rank that merges the
// tensor's statistics, returns them to the ranks that have pieces of it, and provides the scales of the whole tensor.

/// The statistics of one of this rank's pieces.
struct MeasuredPiece {
  std::uint32_t tensor = 0;
  Box box;
  quant::Statistics statistics;
};

/// Collective. Replaces each piece's statistics by the whole tensor's statistics for the same scales. Returns the
/// scales of the tensors whose home is this rank.
std::vector<CodedPiece> exchange_scales(comm::Communicator& communicator, const CodingPlan& plan,
                                        std::span<MeasuredPiece> pieces);

// Split blocks: the elements of a block meet at its home, a rank that codes the block.
//
// Neighbouring blocks share a home, so that their codes form few boxes: the blocks of 64 rows if rows are whole blocks,
// otherwise 1024 blocks of the flattened tensor. Elements of both moments travel uncoded, in rounds of bounded size.

/// The boxes to which a plan's pieces refer.
struct SplitMemory {
  const MomentBoxes& boxes;
  DeviceMemory& device;  ///< for boxes in device memory
};

/// Collective. Returns the codes of the blocks whose home is this rank. Adds the errors of their decoded values to
/// `errors`. Throws Error(kState) for values that the codec refuses.
std::vector<CodedPiece> code_split_blocks(comm::Communicator& communicator, const CodingPlan& plan,
                                          const SplitMemory& memory, Measuring measuring, ErrorsByTensor& errors);

}  // namespace cairn::codes
