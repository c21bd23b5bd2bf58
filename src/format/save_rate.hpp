// The rate of a root's saves, by its log. Pure.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "format/run_log.hpp"

namespace cairn::format {

/// The rates of the last good saves, of which the median counts: one slow save among five changes nothing.
class SaveRates {
 public:
  static constexpr std::size_t kSaves = 5;

  SaveRates() = default;
  explicit SaveRates(const RunLog& log);
  /// A save without bytes or seconds does not count.
  void add(std::uint64_t bytes, double seconds) noexcept;

  [[nodiscard]] std::size_t saves() const { return saves_; }
  /// Bytes per second; nothing without a save.
  [[nodiscard]] std::optional<double> median() const;
  /// Seconds for a save of so many bytes of tensors; 0: unknown.
  [[nodiscard]] double seconds_for(std::uint64_t bytes) const;

 private:
  std::array<double, kSaves> rates_{};  ///< the newest first
  std::size_t saves_ = 0;
};

/// The last good save of a log, or nothing.
std::optional<LogCall> last_save(const RunLog& log);

}  // namespace cairn::format
