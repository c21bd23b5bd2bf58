// How far codes are from the moments that they were made of, by tensor. Rank-local.
#pragma once

#include <cstdint>
#include <limits>
#include <map>

#include "checkpoint/coding_plan.hpp"
#include "quant/errors.hpp"

namespace cairn::checkpoint {

using ErrorsByTensor = std::map<std::uint32_t, quant::ErrorSums>;

/// A box that has just been coded.
struct CodedBox {
  const CodedTensor& tensor;
  const Box& box;             ///< of the codec's view
  quant::ConstMoments given;  ///< what was coded
  quant::PartBytes parts;     ///< what became of it
};

/// Elements of a box, by their number in it.
struct ElementRange {
  std::size_t begin = 0;
  std::size_t end = std::numeric_limits<std::size_t>::max();  ///< or the end of the box
};

/// Decodes the box, and adds how far the elements of the range are from what was given.
void add_errors(const CodedBox& coded, quant::ErrorSums& errors, ElementRange range = {});

}  // namespace cairn::checkpoint
