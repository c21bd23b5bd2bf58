// Sums in double, tensor after tensor.
#include "errors.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "cairn/error.hpp"

namespace cairn::quant_table {
namespace {

constexpr double kEpsilon = 1e-8;

struct Sums {
  double update_error = 0;
  double update = 0;
  double root_error = 0;
  double update_max = 0;
  double root_max = 0;
  double roots = 0;
  double values = 0;
  double size_bytes = 0;
};

void add(Sums& sums, const Tensor& tensor, const Decoded& decoded) {
  for (std::size_t i = 0; i < tensor.m.size(); ++i) {
    const double root = std::sqrt(static_cast<double>(tensor.v[i]));
    const double decoded_root = std::sqrt(static_cast<double>(decoded.v[i]));
    const double update = tensor.m[i] / (root + kEpsilon);
    const double error = std::abs(decoded.m[i] / (decoded_root + kEpsilon) - update);
    sums.update_error += error * error;
    sums.update += update * update;
    sums.update_max = std::max(sums.update_max, error);
    if (tensor.v[i] == 0) continue;
    const double relative = std::abs(decoded_root / root - 1);
    sums.root_error += relative * relative;
    sums.root_max = std::max(sums.root_max, relative);
    sums.roots += 1;
  }
  sums.values += static_cast<double>(tensor.m.size());
  sums.size_bytes += decoded.size_bytes;
}

Errors errors_of(const Sums& sums, double all_values) {
  const double update_rms = std::sqrt(sums.update / sums.values);
  const double roots = std::max(sums.roots, 1.0);
  return {std::sqrt(sums.update_error / sums.values) / update_rms,
          std::sqrt(sums.root_error / roots),
          sums.update_max / update_rms,
          sums.root_max,
          sums.size_bytes / (2 * sums.values),
          sums.values / all_values};
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
    const Errors errors = errors_of(sums, sums.values);
    worst.update_rms = std::max(worst.update_rms, errors.update_rms);
    worst.root_rms = std::max(worst.root_rms, errors.root_rms);
  }
  return worst;
}

}  // namespace cairn::quant_table
