#include "quant/errors.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <span>

#include "quant/own_clones.hpp"

namespace cairn::quant {
namespace {

constexpr double kEpsilon = 1e-8;

double over(double error, double scale) {
  if (error == 0) return 0;
  return scale == 0 ? std::numeric_limits<double>::infinity() : error / scale;
}

}  // namespace

/// Loops of vector code: each of the four sums that lie side by side takes every fourth value.
CAIRN_QUANT_CLONES void ErrorSums::add_run(const float* m, const float* v, const float* decoded_m,
                                           const float* decoded_v, ErrorSums& into) {
  constexpr std::size_t kSums = 4;
  double update_error[kSums] = {};
  double update[kSums] = {};
  double update_max[kSums] = {};
  double root_error[kSums] = {};
  double root_max[kSums] = {};
  double roots[kSums] = {};
  double first_max[kSums] = {};
  double second_max[kSums] = {};
  for (std::size_t i = 0; i < kRun; i += kSums) {
    for (std::size_t k = 0; k < kSums; ++k) {
      const double given_m = m[i + k];
      const double given_v = v[i + k];
      const double found_m = decoded_m[i + k];
      const double found_v = decoded_v[i + k];
      const double root = std::sqrt(given_v);
      const double found_root = std::sqrt(found_v);
      const double step = given_m / (root + kEpsilon);
      const double error = std::abs(found_m / (found_root + kEpsilon) - step);
      const double relative = given_v > 0 ? std::abs(found_root / root - 1) : 0.0;
      update_error[k] += error * error;
      update[k] += step * step;
      update_max[k] = update_max[k] < error ? error : update_max[k];
      root_error[k] += relative * relative;
      root_max[k] = root_max[k] < relative ? relative : root_max[k];
      roots[k] += given_v > 0 ? 1.0 : 0.0;
      const double first = std::abs(found_m - given_m);
      const double second = std::abs(found_v - given_v);
      first_max[k] = first_max[k] < first ? first : first_max[k];
      second_max[k] = second_max[k] < second ? second : second_max[k];
    }
  }
  for (std::size_t k = 0; k < kSums; ++k) {
    into.update_error_ += update_error[k];
    into.update_ += update[k];
    into.update_max_ = std::max(into.update_max_, update_max[k]);
    into.root_error_ += root_error[k];
    into.root_max_ = std::max(into.root_max_, root_max[k]);
    into.roots_ += roots[k];
    into.first_max_ = std::max(into.first_max_, first_max[k]);
    into.second_max_ = std::max(into.second_max_, second_max[k]);
  }
  into.elements_ += static_cast<double>(kRun);
}

void ErrorSums::add(const ConstMoments& given, const ConstMoments& decoded) {
  std::size_t begin = 0;
  for (; begin + kRun <= given.m.size(); begin += kRun) {
    add_run(given.m.data() + begin, given.v.data() + begin, decoded.m.data() + begin, decoded.v.data() + begin, *this);
  }
  const std::size_t rest = given.m.size() - begin;
  if (rest == 0) return;
  // Filled up with pairs that add nothing.
  std::array<std::array<float, kRun>, 4> values{};
  const std::array<std::span<const float>, 4> from = {given.m, given.v, decoded.m, decoded.v};
  for (std::size_t i = 0; i < from.size(); ++i) std::ranges::copy(from[i].subspan(begin, rest), values[i].begin());
  add_run(values[0].data(), values[1].data(), values[2].data(), values[3].data(), *this);
  elements_ -= static_cast<double>(kRun - rest);
}

void ErrorSums::merge(const ErrorSums& other) {
  elements_ += other.elements_;
  update_error_ += other.update_error_;
  update_ += other.update_;
  update_max_ = std::max(update_max_, other.update_max_);
  root_error_ += other.root_error_;
  roots_ += other.roots_;
  root_max_ = std::max(root_max_, other.root_max_);
  first_max_ = std::max(first_max_, other.first_max_);
  second_max_ = std::max(second_max_, other.second_max_);
}

void ErrorSums::weigh(double weight) {
  for (double* sum : {&elements_, &update_error_, &update_, &root_error_, &roots_}) *sum *= weight;
}

double ErrorSums::update_rms() const { return over(std::sqrt(update_error_), std::sqrt(update_)); }

double ErrorSums::update_max() const { return over(update_max_, std::sqrt(update_ / std::max(elements_, 1.0))); }

double ErrorSums::root_rms() const { return std::sqrt(root_error_ / std::max(roots_, 1.0)); }

}  // namespace cairn::quant
