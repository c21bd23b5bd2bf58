// The decision which checkpoints of a root go: about values, without files or clocks (prune.hpp carries it out).
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "cairn/retention.hpp"

namespace cairn::root {

/// Throws Error(kUsage) for a limit of 0, an empty name of a metric, and a metric that is given twice the same way.
void check_retention(const Retention& retention);

enum class Fitness {
  kGood,     ///< whole, and of the run
  kVoid,     ///< whole, and abandoned by the run
  kDamaged,  ///< the run's, and not whole
  kPartial,  ///< being saved, or left by a crash: the next saver's business
  kForeign,  ///< not proven to be the run's: of others, of a newer Cairn, or not readable at the moment
};

struct RetentionEntry {
  std::uint64_t step = 0;
  std::int64_t saved_s = 0;  ///< Unix time of the save
  std::map<std::string, double> metrics = {};
  Fitness fitness = Fitness::kGood;
  std::string problem = {};  ///< why the entry is not kGood
  bool is_pinned = false;
  std::string held = {};  ///< why it must stay whatever the rules; empty: there is no such reason
  /// The tensors that a checkpoint of a part of a state holds, in words; empty: a whole state. The rules count the
  /// checkpoints of each such group apart.
  std::string part = {};
};

struct Verdict {
  bool goes = false;
  std::string why;
};

/// The verdict on each entry. `entries`: in the order in which a run would resume from them, the first one first.
///   - nothing goes without a rule
///   - the first good entry of a whole state stays, or, where none is good, the first void one; so does all of whole
///     states that stands before it
///   - of each group of parts, too, the first good entry stays, or, where none is good, the first void one
///   - pinned and held entries stay, partial and foreign ones as well
///   - a good entry goes if no rule keeps it; void and damaged entries go
std::vector<Verdict> decide(std::span<const RetentionEntry> entries, const Retention& retention, std::int64_t now_s);

/// The entries that go, in the order of removal: void and damaged ones first; then, and among these, the last of
/// `entries` first.
std::vector<std::size_t> removal_order(std::span<const RetentionEntry> entries, std::span<const Verdict> verdicts);

}  // namespace cairn::root
