// Codes or scales in memory, ready to be saved as boxes of a stored tensor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/bytes.hpp"
#include "cairn/box.hpp"

namespace cairn::checkpoint {

struct CodedPiece {
  std::uint32_t tensor = 0;  ///< number in the catalog of first moments
  std::size_t part = 0;      ///< which of the codec's parts
  std::vector<Box> boxes;    ///< of the part; they lie end to end in `bytes`
  base::Bytes bytes;
};

}  // namespace cairn::checkpoint
