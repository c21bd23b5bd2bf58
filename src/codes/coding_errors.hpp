// Which errors of the codes a save measures, by tensor. Rank-local.
#pragma once

#include <cstdint>
#include <map>

#include "codes/coding_plan.hpp"
#include "quant/tensor_errors.hpp"

namespace cairn::checkpoint {

using ErrorsByTensor = std::map<std::uint32_t, quant::TensorErrors>;

enum class Measuring {
  kSample,  ///< to say which tensors are coded worse than their codec's figures
  kAll,     ///< to report figures, or to keep to a limit
};

inline Measuring measuring_of(const Quantisation& options) {
  return options.report || options.max_update_error > 0 ? Measuring::kAll : Measuring::kSample;
}

/// Adds a box that has just been coded to the errors of its tensor.
inline void measure_errors(Measuring measuring, const quant::CodedBox& coded, quant::TensorErrors& errors,
                           quant::ElementRange range = {}) {
  if (measuring == Measuring::kAll) return quant::add_errors(coded, range, errors);
  if (quant::can_be_sampled(coded.codec)) quant::sample_errors(coded, range, errors);
}

}  // namespace cairn::checkpoint
