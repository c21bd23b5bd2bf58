#include "errors.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "cairn/error.hpp"
#include "quant/errors.hpp"

namespace cairn::quant_table {
namespace {

struct Sums {
  quant::ErrorSums errors;
  double size_bytes = 0;
};

void add(Sums& sums, const Tensor& tensor, const Decoded& decoded) {
  sums.errors.add({tensor.m, tensor.v}, {decoded.m, decoded.v});
  sums.size_bytes += decoded.size_bytes;
}

Errors errors_of(const Sums& sums, double all_values) {
  const quant::ErrorSums& errors = sums.errors;
  return {errors.update_rms(),
          errors.root_rms(),
          errors.update_max(),
          errors.root_max(),
          sums.size_bytes / (2 * errors.elements()),
          errors.elements() / all_values};
}

}  // namespace

Errors measure(const Coding& coding, const State& state) {
  Sums sums;
  double all_values = 0;
  for (const Tensor& tensor : state.tensors) {
    all_values += static_cast<double>(tensor.m.size());
    if (const auto decoded = coding.code(tensor)) add(sums, tensor, *decoded);
  }
  const Errors errors = errors_of(sums, all_values);
  if (std::isfinite(errors.update_rms) && std::isfinite(errors.root_rms)) return errors;
  throw Error(ErrorKind::kInternal, fmt::format("{} gives no numbers on {}", coding.name, state.name));
}

Errors worst_tensor(const Coding& coding, const State& state) {
  Errors worst;
  for (const Tensor& tensor : state.tensors) {
    const auto decoded = coding.code(tensor);
    if (!decoded) continue;
    Sums sums;
    add(sums, tensor, *decoded);
    const Errors errors = errors_of(sums, sums.errors.elements());
    worst.update_rms = std::max(worst.update_rms, errors.update_rms);
    worst.root_rms = std::max(worst.root_rms, errors.root_rms);
  }
  return worst;
}

}  // namespace cairn::quant_table
