// How far decoded moments are from those that were coded. Sums in double; the order of adding decides the last bits.
#pragma once

#include "quant/codec.hpp"

namespace cairn::quant {

/// Sums over any number of values; update = m / (sqrt(v) + 1e-8).
class ErrorSums {
 public:
  /// Requires: four spans of equal length, v >= 0.
  void add(const ConstMoments& given, const ConstMoments& decoded);
  void merge(const ErrorSums& other);
  /// As if each value had been added so many times.
  void weigh(double weight);

  [[nodiscard]] double elements() const { return elements_; }
  /// RMS of the update's error over the RMS of the update; 0 where nothing differs, infinity where all updates were 0.
  [[nodiscard]] double update_rms() const;
  /// Largest error of an update, over the same.
  [[nodiscard]] double update_max() const;
  /// RMS of the relative error of sqrt(v), where v > 0.
  [[nodiscard]] double root_rms() const;
  [[nodiscard]] double root_max() const { return root_max_; }
  /// Largest absolute error of m, and of v.
  [[nodiscard]] double first_max() const { return first_max_; }
  [[nodiscard]] double second_max() const { return second_max_; }

 private:
  static constexpr std::size_t kRun = 128;
  static void add_run(const float* m, const float* v, const float* decoded_m, const float* decoded_v, ErrorSums& into);

  double elements_ = 0;
  double update_error_ = 0;
  double update_ = 0;
  double update_max_ = 0;
  double root_error_ = 0;
  double roots_ = 0;
  double root_max_ = 0;
  double first_max_ = 0;
  double second_max_ = 0;
};

}  // namespace cairn::quant
