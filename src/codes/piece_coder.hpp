// Codes boxes of moments that lie entirely in this rank's memory, on the host or on a device. Rank-local.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "base/bytes.hpp"
#include "cairn/box.hpp"
#include "codes/coding_plan.hpp"
#include "codes/device_memory.hpp"
#include "quant/errors.hpp"

namespace cairn::codes {

// Codes or scales in memory, ready to be saved as boxes of a stored tensor.

struct CodedPiece {
  std::uint32_t tensor = 0;  ///< number in the catalog of first moments
  std::size_t part = 0;      ///< number of the part, as in Codec::parts()
  std::vector<Box> boxes;    ///< boxes of the part, end to end in `bytes`
  base::Bytes bytes;
};

// The errors of the codes, which a save measures by tensor. Rank-local.

using ErrorsByTensor = std::map<std::uint32_t, quant::TensorErrors>;

enum class Measuring {
  kSample,  ///< to find tensors that are coded worse than their codec's figures
  kAll,     ///< to report figures, or to enforce a limit
};

inline Measuring measuring_of(const Quantisation& options) {
  return options.report || options.max_update_error > 0 ? Measuring::kAll : Measuring::kSample;
}

/// Adds the errors of a box that has just been coded, or of a sample of its blocks.
inline void measure_errors(Measuring measuring, const quant::CodedBox& coded, quant::TensorErrors& errors,
                           quant::ElementRange range = {}) {
  if (measuring == Measuring::kAll) return quant::add_errors(coded, range, errors);
  quant::sample_errors(coded, range, errors);
}

/// The memory boxes of a piece, both on the host or both on a device.
struct PieceMemory {
  const plan::MemoryBox& first;
  const plan::MemoryBox& second;
  DeviceMemory& device;  ///< for boxes on a device
};

/// The piece's statistics, as the codec measures them. Throws Error(kState) naming the first element whose m or v is
/// not finite, or whose v is negative.
quant::Statistics measure_piece(const CodedTensor& tensor, const Box& box, const PieceMemory& memory);

/// The bytes of each part's box. Parts of role kScales are empty, since several pieces can share a column's scales.
/// Adds the errors of the decoded values to `errors`.
std::vector<base::Bytes> encode_piece(const CodedTensor& tensor, const Box& box, const PieceMemory& memory,
                                      const quant::Statistics& statistics, Measuring measuring,
                                      quant::TensorErrors& errors);

}  // namespace cairn::codes
