// A model of a root for histories_test.cpp: its steps, the steps that a run has abandoned, and the order in which a run
// resumes from them. The model counts lives and saves, without manifests, epochs or lineages.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "cairn/retention.hpp"
#include "root/standing.hpp"

namespace cairn::test {

/// The model's facts about a step.
struct Saved {
  root::Condition condition = root::Condition::kWhole;
  std::string content;      ///< content of its data file; for a foreign directory, of a file in it
  std::size_t life = 0;     ///< life that saved it; only if it has a manifest
  std::uint64_t order = 0;  ///< in the order of saving
  bool is_unsound = false;  ///< a load finds it damaged, though a listing does not
};

struct Model {
  using Condition = root::Condition;
  using Steps = std::vector<std::uint64_t>;

  std::map<std::uint64_t, Saved> there;
  /// For each life that took the lease, the life from which it resumed, and the order number of the checkpoint; nothing
  /// if unknown.
  std::vector<std::optional<std::pair<std::size_t, std::uint64_t>>> lives;
  std::uint64_t saves = 0;
  std::set<std::uint64_t> pins;

  /// The step whose manifest, of those that can be read, was saved last.
  [[nodiscard]] std::optional<std::uint64_t> head() const {
    std::optional<std::uint64_t> last;
    for (const auto& [step, saved] : there) {
      if (has_manifest(saved) && (!last || there.at(*last).order < saved.order)) last = step;
    }
    return last;
  }
  [[nodiscard]] bool is_left(std::uint64_t step, std::size_t by) const {
    const Saved& saved = there.at(step);
    if (saved.life == by) return false;
    std::map<std::size_t, std::uint64_t> ancestors;  // with the last save of each before it was left
    for (auto at = lives.at(by); at && !ancestors.contains(at->first); at = lives.at(at->first)) ancestors.insert(*at);
    if (ancestors.empty() || saved.life < ancestors.begin()->first) return false;
    const auto ancestor = ancestors.find(saved.life);
    return ancestor == ancestors.end() || ancestor->second < saved.order;
  }
  [[nodiscard]] static bool has_manifest(const Saved& saved) {
    return saved.condition == Condition::kWhole || saved.condition == Condition::kIncomplete;
  }
  [[nodiscard]] bool has_whole() const {
    return std::ranges::any_of(there, [](const auto& one) { return one.second.condition == Condition::kWhole; });
  }

  /// Steps that no pruning may remove, but for those that the latest file names. `in_order`: the result of order().
  [[nodiscard]] std::set<std::uint64_t> untouchable(const Steps& in_order, const Retention& rules) const {
    std::set<std::uint64_t> steps = pins;
    for (const std::uint64_t step : in_order) {  // up to the one to resume from
      steps.insert(step);
      if (there.at(step).condition == Condition::kWhole) break;
    }
    const auto last = head();
    if (last) steps.insert(*last);
    std::set<std::uint64_t> good;
    for (const auto& [step, saved] : there) {
      const bool is_whole = saved.condition == Condition::kWhole;
      const bool is_bad = saved.condition == Condition::kIncomplete || saved.condition == Condition::kDamaged;
      if (!is_whole && !is_bad) steps.insert(step);
      if (!is_whole || is_left(step, there.at(*last).life)) continue;
      if (std::ranges::count(in_order, step) == 0) steps.insert(step);  // saved after the step that a person named
      good.insert(step);
      if (rules.keep_every && step % *rules.keep_every == 0) steps.insert(step);
      if (std::ranges::count(rules.keep_steps, step) != 0) steps.insert(step);
    }
    std::uint64_t last_ones = rules.keep_last.value_or(0);
    for (const std::uint64_t step : in_order) {
      if (last_ones == 0) break;
      if (!good.contains(step)) continue;
      steps.insert(step);
      --last_ones;
    }
    return steps;
  }

  /// Valid steps, the last saved first, a step without a readable manifest before lower steps; then abandoned steps.
  /// `named` is the step in the latest file, `written` the step that Cairn last wrote there. If they differ, a user
  /// named a step: valid steps before that step are omitted, and so are abandoned steps that may have been saved later.
  /// Otherwise, `written` comes first if it was the last saved step, as far as known.
  [[nodiscard]] Steps order(std::optional<std::uint64_t> named, std::optional<std::uint64_t> written) const {
    const auto is_later = [&](std::uint64_t a, std::uint64_t b) { return there.at(a).order > there.at(b).order; };
    Steps saved_last;
    for (const auto& [step, saved] : there) {
      if (has_manifest(saved)) saved_last.push_back(step);
    }
    std::ranges::sort(saved_last, is_later);
    Steps steps;
    Steps left;
    for (const std::uint64_t step : saved_last) {
      if (!is_left(step, there.at(saved_last.front()).life)) {
        steps.push_back(step);
      } else if (there.at(step).condition == Condition::kWhole) {
        left.push_back(step);
      }
    }
    for (const auto& [step, saved] : there) {
      if (has_manifest(saved)) continue;
      steps.insert(std::ranges::find_if(steps, [&, above = step](std::uint64_t other) { return other < above; }), step);
    }
    if (const auto at = std::ranges::find(steps, named.value_or(0)); named != written && at != steps.end()) {
      const bool is_known = has_manifest(there.at(*at));
      std::erase_if(left, [&](std::uint64_t step) { return !is_known || is_later(step, *at); });
      steps.erase(steps.begin(), at);
    } else if (const auto last = std::ranges::find(steps, written.value_or(0)); last != steps.end()) {
      const bool is_last = !has_manifest(there.at(*last)) || *last == saved_last.front();
      if (is_last) std::rotate(steps.begin(), last, steps.end());
    }
    steps.insert(steps.end(), left.begin(), left.end());
    return steps;
  }

  /// The first step that is neither incomplete nor foreign, and so may be the newest step.
  [[nodiscard]] std::optional<std::uint64_t> first_candidate(const Steps& steps) const {
    return first(steps, [](const Saved& saved) {
      return saved.condition != Condition::kIncomplete && saved.condition != Condition::kForeign;
    });
  }
  /// The step at which a load that skips damage ends: an intact step, or a step that only a newer Cairn can read, or
  /// that can be read only later.
  [[nodiscard]] std::optional<std::uint64_t> end_of_load(const Steps& steps) const {
    return first(steps, [](const Saved& saved) {
      const bool is_stop = saved.condition == Condition::kNewer || saved.condition == Condition::kUnreadable;
      return (is_stop || saved.condition == Condition::kWhole) && !saved.is_unsound;
    });
  }
  [[nodiscard]] std::optional<std::uint64_t> newest_for_load(const Steps& steps) const {
    const auto end = end_of_load(steps);
    return end && there.at(*end).condition == Condition::kWhole ? end : std::nullopt;
  }
  [[nodiscard]] std::optional<std::uint64_t> in_the_way_of_load(const Steps& steps) const {
    const auto end = end_of_load(steps);
    return end && there.at(*end).condition != Condition::kWhole ? end : std::nullopt;
  }

 private:
  template <class Is>
  [[nodiscard]] std::optional<std::uint64_t> first(const Steps& steps, Is is) const {
    const auto found = std::ranges::find_if(steps, [&](std::uint64_t step) { return is(there.at(step)); });
    return found == steps.end() ? std::nullopt : std::optional(*found);
  }
};

}  // namespace cairn::test
