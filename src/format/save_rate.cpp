#include "format/save_rate.hpp"

#include <algorithm>

namespace cairn::format {
SaveRates::SaveRates(const RunLog& log) {
  for (const LogCall& call : log.calls) {
    if (call.is_good(kLogSave)) add(call.bytes, call.seconds);
  }
}

void SaveRates::add(std::uint64_t bytes, double seconds) noexcept {
  if (bytes == 0 || !(seconds > 0)) return;
  std::shift_right(rates_.begin(), rates_.end(), 1);
  rates_.front() = static_cast<double>(bytes) / seconds;
  saves_ = std::min(saves_ + 1, kSaves);
}

std::optional<double> SaveRates::median() const {
  if (saves_ == 0) return std::nullopt;
  std::array<double, kSaves> sorted = rates_;
  std::sort(sorted.begin(), sorted.begin() + static_cast<std::ptrdiff_t>(saves_));
  const std::size_t middle = saves_ / 2;
  return saves_ % 2 == 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

double SaveRates::seconds_for(std::uint64_t bytes) const {
  const auto rate = median();
  return rate ? static_cast<double>(bytes) / *rate : 0;
}

std::optional<LogCall> last_save(const RunLog& log) {
  const auto is_save = [](const LogCall& call) { return call.is_good(kLogSave); };
  const auto last = std::find_if(log.calls.rbegin(), log.calls.rend(), is_save);
  return last == log.calls.rend() ? std::nullopt : std::optional(*last);
}

}  // namespace cairn::format
