// Codes the boxes of moments that lie whole in this rank's memory: on the host, or where they are on a device. Rank-local.
#pragma once

#include <span>
#include <vector>

#include "base/bytes.hpp"
#include "codes/coding_errors.hpp"
#include "codes/coding_plan.hpp"
#include "codes/device_memory.hpp"

namespace cairn::checkpoint {

/// The memory boxes that a piece lies in, both on the host or both on a device.
struct PieceMemory {
  const LocalBox& first;
  const LocalBox& second;
  DeviceMemory& device;  ///< for the latter
};

/// What the codec finds in the piece. Throws Error(kState) naming the first element that is not finite, or negative in v.
quant::Statistics measure_piece(const CodedTensor& tensor, const Box& box, const PieceMemory& memory);

/// The bytes of each part's box; parts of role kScales have none where the codec has statistics, since scales of one column
/// belong to many pieces. `errors` get what decoding makes of them.
std::vector<base::Bytes> encode_piece(const CodedTensor& tensor, const Box& box, const PieceMemory& memory,
                                      const quant::Statistics& statistics, Measuring measuring,
                                      quant::TensorErrors& errors);

}  // namespace cairn::checkpoint
