// A root as histories_test.cpp expects it: which steps there are, which of them a run has left, and in which order a run
// resumes from them. It counts lives and saves, and knows of no manifest, epoch or lineage.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "root/standing.hpp"

namespace cairn::test {

/// What the model knows of a name.
struct Saved {
  root::Condition condition = root::Condition::kWhole;
  std::string content;      ///< of its data file; of what is not Cairn's, of a file in it
  std::size_t life = 0;     ///< with a manifest
  std::uint64_t order = 0;  ///< of saving
  bool is_unsound = false;  ///< a load finds it damaged, though a listing does not
};

struct Model {
  using Condition = root::Condition;
  using Steps = std::vector<std::uint64_t>;

  std::map<std::uint64_t, Saved> there;
  /// Of each life that took the lease: of which life, and how late in the order of saving, is what it was resumed from;
  /// nothing: it is not known.
  std::vector<std::optional<std::pair<std::size_t, std::uint64_t>>> lives;
  std::uint64_t saves = 0;

  [[nodiscard]] bool is_left(std::uint64_t step, std::size_t by) const {
    const Saved& saved = there.at(step);
    if (saved.life == by) return false;
    std::map<std::size_t, std::uint64_t> ancestors;  // and how far each went until it was left
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

  /// Those that no run has left, saved last first; where a manifest tells nothing, a step stands before the lower ones.
  /// Then those that a run has left. `named` is the step in the file that names the latest, `written` that which Cairn
  /// last wrote there: it begins with that one where it was saved last as far as is known, and with a step that people
  /// named, which has none before it that was saved later.
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

  /// The first that may be the newest: it is whole, or nobody knows.
  [[nodiscard]] std::optional<std::uint64_t> first_candidate(const Steps& steps) const {
    return first(steps, [](const Saved& saved) {
      return saved.condition != Condition::kIncomplete && saved.condition != Condition::kForeign;
    });
  }
  /// Where a load that goes past damage ends: at a whole one, or at one that only others can read, or only later.
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
