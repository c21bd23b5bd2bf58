#include "quant/errors.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace cairn::quant {
namespace {

constexpr double kEpsilon = 1e-8;

double over(double error, double scale) {
  if (error == 0) return 0;
  return scale == 0 ? std::numeric_limits<double>::infinity() : error / scale;
}

}  // namespace

void ErrorSums::add(const ConstMoments& given, const ConstMoments& decoded) {
  for (std::size_t i = 0; i < given.m.size(); ++i) {
    const double m = given.m[i];
    const double v = given.v[i];
    const double root = std::sqrt(v);
    const double decoded_root = std::sqrt(static_cast<double>(decoded.v[i]));
    const double update = m / (root + kEpsilon);
    const double error = std::abs(decoded.m[i] / (decoded_root + kEpsilon) - update);
    update_error_ += error * error;
    update_ += update * update;
    update_max_ = std::max(update_max_, error);
    first_max_ = std::max(first_max_, std::abs(decoded.m[i] - m));
    second_max_ = std::max(second_max_, std::abs(decoded.v[i] - v));
    if (v == 0) continue;
    const double relative = std::abs(decoded_root / root - 1);
    root_error_ += relative * relative;
    root_max_ = std::max(root_max_, relative);
    roots_ += 1;
  }
  elements_ += static_cast<double>(given.m.size());
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

double ErrorSums::update_rms() const { return over(std::sqrt(update_error_), std::sqrt(update_)); }

double ErrorSums::update_max() const { return over(update_max_, std::sqrt(update_ / std::max(elements_, 1.0))); }

double ErrorSums::root_rms() const { return std::sqrt(root_error_ / std::max(roots_, 1.0)); }

}  // namespace cairn::quant
