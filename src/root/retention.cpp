#include "root/retention.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <tuple>
#include <utility>

#include "base/text.hpp"
#include "cairn/error.hpp"

namespace cairn::root {
namespace {

constexpr std::int64_t kHourS = 3600;
constexpr std::int64_t kDayS = 24 * kHourS;

Error zero(std::string_view what) {
  return {ErrorKind::kUsage, fmt::format("{} is 0; give at least 1, or leave the rule out", what)};
}

const char* name_of(Best best) { return best == Best::kMin ? "min" : "max"; }

/// Rounded down, also before 1970.
std::int64_t unit_of(std::int64_t time_s, std::int64_t unit_s) {
  return time_s / unit_s - (time_s % unit_s < 0 ? 1 : 0);
}

/// Notes the rules that keep each entry.
class Rules {
 public:
  Rules(std::span<const RetentionEntry> entries, const Retention& retention, std::int64_t now_s)
      : entries_(entries), kept_by_(entries.size()) {
    std::map<std::string_view, std::vector<std::size_t>> groups;
    for (std::size_t i = 0; i < entries.size(); ++i) {
      if (entries[i].fitness == Fitness::kGood) groups[entries[i].part].push_back(i);
    }
    for (auto& group : groups) {
      good_ = std::move(group.second);
      apply(retention, now_s);
    }
  }

  [[nodiscard]] const std::string& kept_by(std::size_t entry) const { return kept_by_[entry]; }

 private:
  void apply(const Retention& retention, std::int64_t now_s) {
    if (retention.keep_last) keep_last(*retention.keep_last);
    if (retention.keep_every) keep_every(*retention.keep_every);
    keep_steps(retention.keep_steps);
    for (const BestBy& rule : retention.keep_best) keep_best(rule);
    if (retention.keep_by_age) keep_by_age(now_s);
  }

  void keep(std::size_t entry, std::string_view rule) {
    std::string& rules = kept_by_[entry];
    rules += fmt::format("{}{}", rules.empty() ? "" : ", ", rule);
  }

  void keep_last(std::uint64_t count) {
    const std::string rule = fmt::format("last {}", count);
    for (std::size_t i = 0; i < good_.size() && i < count; ++i) keep(good_[i], rule);
  }

  void keep_every(std::uint64_t steps) {
    const std::string rule = fmt::format("every {}", steps);
    for (const std::size_t entry : good_) {
      if (entries_[entry].step % steps == 0) keep(entry, rule);
    }
  }

  void keep_steps(const std::vector<std::uint64_t>& steps) {
    const std::set<std::uint64_t> listed(steps.begin(), steps.end());
    for (const std::size_t entry : good_) {
      if (listed.contains(entries_[entry].step)) keep(entry, "listed");
    }
  }

  void keep_best(const BestBy& rule) {
    std::vector<std::pair<double, std::size_t>> values;
    for (const std::size_t entry : good_) {
      const auto found = entries_[entry].metrics.find(rule.metric);
      if (found != entries_[entry].metrics.end()) values.emplace_back(found->second, entry);
    }
    std::ranges::stable_sort(values, [&](const auto& a, const auto& b) {
      return rule.best == Best::kMin ? a.first < b.first : b.first < a.first;
    });
    const std::string text =
        fmt::format("best {} by {} ({})", rule.keep, base::printable(rule.metric), name_of(rule.best));
    for (std::size_t i = 0; i < values.size() && i < rule.keep; ++i) keep(values[i].second, text);
  }

  void keep_by_age(std::int64_t now_s) {
    keep_last_of_each(kHourS, now_s - kDayS, "last of its hour");
    keep_last_of_each(kDayS, std::nullopt, "last of its day");
  }

  /// Units of UTC, not of age: the last one of a unit that is over stays the last one.
  void keep_last_of_each(std::int64_t unit_s, std::optional<std::int64_t> after_s, std::string_view rule) {
    std::map<std::int64_t, std::size_t> last;
    for (const std::size_t entry : good_) {
      const std::int64_t saved_s = entries_[entry].saved_s;
      if (after_s && saved_s <= *after_s) continue;
      const auto [found, is_new] = last.emplace(unit_of(saved_s, unit_s), entry);
      if (!is_new && entries_[found->second].saved_s < saved_s) found->second = entry;
    }
    for (const auto& [unit, entry] : last) keep(entry, rule);
  }

  std::span<const RetentionEntry> entries_;
  std::vector<std::size_t> good_;  ///< of one group
  std::vector<std::string> kept_by_;
};

/// The position of the group's entry that stays as the newest; the number of entries without any.
std::size_t newest_of(std::span<const RetentionEntry> entries, std::string_view part) {
  const auto position_of = [&](Fitness fitness) {
    const auto is_it = [&](const RetentionEntry& entry) { return entry.fitness == fitness && entry.part == part; };
    return static_cast<std::size_t>(std::ranges::find_if(entries, is_it) - entries.begin());
  };
  const std::size_t good = position_of(Fitness::kGood);
  return good != entries.size() ? good : position_of(Fitness::kVoid);
}

/// The reason for which the entry stays whatever the rules; empty: they decide. `newest`: newest_of() its group.
std::string why_untouched(const RetentionEntry& entry, std::size_t position, std::size_t newest) {
  if (entry.is_pinned) return "pinned";
  if (position == newest) return entry.part.empty() ? "newest" : fmt::format("newest with {}", entry.part);
  if (entry.fitness == Fitness::kPartial || entry.fitness == Fitness::kForeign) return entry.problem;
  if (!entry.held.empty()) return entry.held;
  if (position < newest && entry.part.empty())
    return fmt::format("may be newer than all that is whole ({})", entry.problem);
  return {};
}

}  // namespace

void check_retention(const Retention& retention) {
  if (retention.keep_last == 0U) throw zero("the number of checkpoints to keep (keep_last)");
  if (retention.keep_every == 0U) throw zero("the distance of steps to keep (keep_every)");
  std::set<std::pair<std::string, Best>> seen;
  for (const BestBy& rule : retention.keep_best) {
    if (rule.metric.empty())
      throw Error(ErrorKind::kUsage, "a rule for the best checkpoints (keep_best) names no metric");
    if (rule.keep == 0)
      throw zero(fmt::format("the number of the best by '{}' (keep_best)", base::printable(rule.metric)));
    if (seen.emplace(rule.metric, rule.best).second) continue;
    throw Error(ErrorKind::kUsage, fmt::format("there are two rules for the best by '{}' ({}); give one",
                                               base::printable(rule.metric), name_of(rule.best)));
  }
}

std::vector<Verdict> decide(std::span<const RetentionEntry> entries, const Retention& retention, std::int64_t now_s) {
  std::vector<Verdict> verdicts(entries.size());
  const Rules rules(entries, retention, now_s);
  std::map<std::string_view, std::size_t> newest;  // by group
  for (const RetentionEntry& entry : entries) {
    if (!newest.contains(entry.part)) newest[entry.part] = newest_of(entries, entry.part);
  }
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const RetentionEntry& entry = entries[i];
    std::string& why = verdicts[i].why;
    why = why_untouched(entry, i, newest.at(entry.part));
    const std::string& kept_by = rules.kept_by(i);
    if (!kept_by.empty()) why += (why.empty() ? "" : ", ") + kept_by;
    if (!why.empty()) continue;
    if (retention.empty()) {
      why = "no rule is given";
      continue;
    }
    verdicts[i].goes = true;
    why = entry.fitness == Fitness::kGood ? "no rule keeps it" : entry.problem;
  }
  return verdicts;
}

std::vector<std::size_t> removal_order(std::span<const RetentionEntry> entries, std::span<const Verdict> verdicts) {
  std::vector<std::size_t> order;
  for (std::size_t i = entries.size(); i-- > 0;) {
    if (verdicts[i].goes) order.push_back(i);
  }
  std::stable_partition(order.begin(), order.end(),
                        [&](std::size_t i) { return entries[i].fitness != Fitness::kGood; });
  return order;
}

}  // namespace cairn::root
