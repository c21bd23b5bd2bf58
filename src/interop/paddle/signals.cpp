#include "interop/paddle/signals.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "base/text.hpp"
#include "interop/file_names.hpp"

namespace cairn::interop {
namespace {

/// The word of a signal, and the section whose files it is about.
constexpr std::array<std::pair<std::string_view, std::string_view>, 3> kKinds = {
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

/// Whether the section has files; an adapter's count as the model's.
bool has_section(Reading& reading, std::string_view section) {
  return std::ranges::any_of(reading.sets(), [&](const auto& item) {
    const DataSet& set = item.second;
    if (section == "model" && set.section == "adapter") return true;
    return set.section == section || set.name.starts_with(std::string(section) + ".");
  });
}

}  // namespace

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
