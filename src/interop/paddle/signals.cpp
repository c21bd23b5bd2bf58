#include "interop/paddle/signals.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <utility>

#include "base/digits.hpp"
#include "base/text.hpp"

namespace cairn::interop {
namespace {

/// The word of a signal, and the section of its files.
using Kind = std::pair<std::string_view, std::string_view>;
constexpr std::array<Kind, 3> kKinds = {
    {{"model_weight", "model"}, {"master_weight", "master_weights"}, {"optimizer_weight", "optimizer"}}};

using Signals = std::map<std::string_view, std::set<std::uint32_t>>;  // word -> ranks

std::string name_of(std::string_view word, std::uint32_t rank) { return fmt::format(".{}.done.{}", word, rank); }

Signals signals_of(const Reading& reading) {
  Signals signals;
  for (const auto& [file, size] : reading.directory().others) {
    const auto signal = parse_signal_name(file);
    if (signal && !signal->word.empty()) signals[signal->word].insert(signal->rank);
  }
  return signals;
}

/// Whether the section has files; an adapter's files count as the model's.
bool has_section(Reading& reading, std::string_view section) {
  return std::ranges::any_of(reading.sets(), [&](const auto& item) {
    const DataSet& set = item.second;
    if (section == "model" && set.section == "adapter") return true;
    return set.section == section || set.name.starts_with(std::string(section) + ".");
  });
}

}  // namespace

std::optional<SignalName> parse_signal_name(std::string_view file) {
  constexpr std::string_view kOfAll = "saved_signal_";
  constexpr std::string_view kDone = ".done.";
  const std::size_t digits = base::trailing_digits(file);
  if (digits == 0 || digits > 7) return std::nullopt;
  std::string_view start = file.substr(0, file.size() - digits);
  const auto rank = base::number_in<std::uint32_t>(file.substr(start.size())).value();
  if (start == kOfAll) return SignalName{{}, rank};
  if (!start.starts_with('.') || !start.ends_with(kDone)) return std::nullopt;
  start = start.substr(1, start.size() - 1 - kDone.size());
  const auto word = std::ranges::find(kKinds, start, &Kind::first);
  if (word == kKinds.end()) return std::nullopt;
  return SignalName{word->first, rank};
}

void check_signals(Reading& reading) {
  const Signals signals = signals_of(reading);
  std::uint32_t ranks = 0;
  for (const auto& [word, done] : signals) ranks = std::max(ranks, *done.rbegin() + 1);
  for (const auto& [word, section] : kKinds) {
    const auto found = signals.find(word);
    if (signals.empty() || (found == signals.end() && !has_section(reading, section))) continue;
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      if (found != signals.end() && found->second.contains(rank)) continue;
      throw reading.error(
          ErrorKind::kFormat, name_of(word, rank),
          fmt::format("the file is missing: the asynchronous save of the checkpoint has not ended, or was "
                      "cut off before rank {} had written its part; signals of {} are here",
                      rank, base::counted(ranks, "rank")));
    }
  }
}

}  // namespace cairn::interop
