// Prints the advice of cairn::advise as text and JSON.
#include "cli/advise.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <vector>

#include "base/text.hpp"
#include "cairn/error.hpp"
#include "cli/json_output.hpp"
#include "cli/table.hpp"
#include "comm/agree.hpp"
#include "life/duration.hpp"

namespace cairn::cli {
namespace {

using life::shown_duration;

constexpr double kMinute = 60;

std::string percent(double share) { return fmt::format("{:.2f}", 100 * share); }

std::string minutes(double seconds) {
  const double number = seconds / kMinute;
  return number < 1 ? fmt::format("{:.2g}", number) : fmt::format("{:.1f}", number);
}

/// "9.0 min (36 steps)".
std::string with_steps(const SaveInterval& interval) {
  const std::string time = minutes(interval.seconds) + " min";
  return interval.steps == 0 ? time : fmt::format("{} ({})", time, counted(interval.steps, "step"));
}

/// "6.5 to 12.5 min (26 to 50 steps)".
std::string with_steps(const SaveIntervals& band) {
  const std::string time = fmt::format("{} to {} min", minutes(band.shortest.seconds), minutes(band.longest.seconds));
  if (band.shortest.steps == 0) return time;
  return fmt::format("{} ({} to {} steps)", time, group_digits(band.shortest.steps), group_digits(band.longest.steps));
}

const char* name_of(IntervalBound bound) {
  switch (bound) {
    case IntervalBound::kNone: break;
    case IntervalBound::kBackground: return "background";
    case IntervalBound::kStep: return "step";
  }
  return "";
}

/// The sources of what is not given as an option.
std::vector<std::string> notes_of_sources(const AdviseOptions& options, const RunHistory& history) {
  std::vector<std::string> notes;
  std::vector<std::string> missing;
  std::vector<std::string> measured;
  const auto look = [&](const std::optional<double>& given, const MeasuredFigure* figure, const char* option) {
    if (given) return;
    if (figure == nullptr || figure->calls == 0) return missing.emplace_back(option), void();
    measured.push_back(
        fmt::format("{} {} ({} calls)", option, shown_duration(figure->median), group_digits(figure->calls)));
  };
  look(options.stall_s, &history.stall_s, "--stall");
  look(options.background_s, &history.background_s, "--background");
  look(options.load_s, &history.load_s, "--load");
  look(options.restart_s, nullptr, "--restart");
  if (!measured.empty()) notes.push_back(fmt::format("medians of the log: {}", base::joined(measured)));
  if (!missing.empty()) notes.push_back(fmt::format("not given, and taken as 0 s: {}", base::joined(missing)));
  return notes;
}

std::vector<std::string> notes_of(const AdviceBasis& basis, const Advice& advice) {
  std::vector<std::string> notes = advice.notes;
  notes.insert(notes.end(), basis.notes.begin(), basis.notes.end());
  if (advice.bound == IntervalBound::kBackground) {
    notes.push_back("the interval is as long as the background time: more frequent saves would wait for each other");
  } else if (advice.bound == IntervalBound::kStep) {
    notes.push_back("the interval is one step: the optimum is shorter");
  }
  return notes;
}

/// ", from 12 failures in 400 h"; nothing if the MTBF was given.
std::string source_of(const FailureData& data) {
  if (data.observed) {
    return fmt::format(", from {} in {:g} h", counted(*data.observed, "failure"), *data.observed_hours);
  }
  if (!data.nodes) return {};
  return fmt::format(", from {} with {:g} failures in 1000 node-days", counted(*data.nodes, "node"),
                     data.per_1000_node_days.value_or(kPublishedRate));
}

void print_costs(Output& output, const Advice& advice) {
  Table table({"cost", ">seconds", ">waste %", ">halved, saves %"});
  for (const CostShare& part : advice.costs) {
    table.add({cairn::name_of(part.term), fmt::format("{:g}", part.seconds), percent(part.waste),
               percent(part.saved_if_halved)});
  }
  table.add({"work done again", "", percent(advice.lost_work), ""});
  table.add({"all", "", percent(advice.best.waste), ""});
  output.line(table.text());
}

void print_formulas(Output& output, const Advice& advice) {
  Table table({"formula", "", ">minutes", ">steps", ">waste %"});
  for (const AdviceFormula& formula : advice.formulas) {
    const SaveInterval& interval = formula.interval;
    table.add({formula.name, formula.source, minutes(interval.seconds),
               interval.steps == 0 ? "-" : group_digits(interval.steps), percent(interval.waste)});
  }
  output.line(table.text());
}

std::string sentence_of_mending(const Advice& advice) {
  for (const CostShare& part : advice.costs) {
    if (part.term != advice.mend_first) continue;
    return fmt::format("mend the {} first: {} in place of {} would save {} % of the time",
                       part.term == CostTerm::kBackground ? "background time" : cairn::name_of(part.term),
                       shown_duration(part.seconds / 2), shown_duration(part.seconds), percent(part.saved_if_halved));
  }
  return "there is no cost to mend";
}

void print_text(Output& output, const AdviceBasis& basis, const Advice& advice) {
  const AdviceInput& input = basis.input;
  output.line(
      fmt::format("save every {}: {} % of the time is waste", with_steps(advice.best), percent(advice.best.waste)));
  output.line(fmt::format("from {} the waste is at most {} %", with_steps(advice.band),
                          percent(std::max(advice.band.shortest.waste, advice.band.longest.waste))));
  output.line(fmt::format("MTBF {}{}", shown_duration(advice.mtbf_s), source_of(input.failures)));
  if (advice.mtbf_low_s != advice.mtbf_high_s) {
    output.line(fmt::format(
        "between {} and {} with 90 % probability: a waste of {} % to {} %, and the interval from {}",
        shown_duration(advice.mtbf_low_s), shown_duration(advice.mtbf_high_s), percent(advice.waste_at_mtbf_low),
        percent(advice.waste_at_mtbf_high), with_steps(advice.likely_band)));
  }
  output.line("");
  print_costs(output, advice);
  output.line("");
  print_formulas(output, advice);
  output.line("");
  output.line(sentence_of_mending(advice));
  for (const std::string& note : notes_of(basis, advice)) output.line("note: " + one_line(note));
}

base::Json json_of(const SaveInterval& interval) {
  return {{"seconds", json_number(interval.seconds)},
          {"steps", interval.steps == 0 ? base::Json() : base::Json(interval.steps)},
          {"waste", json_number(interval.waste)}};
}

base::Json json_of(const SaveIntervals& band) {
  return {{"shortest", json_of(band.shortest)}, {"longest", json_of(band.longest)}};
}

void print_document(Output& output, const AdviceBasis& basis, const Advice& advice) {
  const AdviceInput& input = basis.input;
  base::Json document = json_document("advise");
  document["best"] = json_of(advice.best);
  document["bound"] = name_of(advice.bound);
  document["band"] = json_of(advice.band);
  document["likely_band"] = json_of(advice.likely_band);
  document["mtbf_seconds"] = advice.mtbf_s;
  document["mtbf_low_seconds"] = advice.mtbf_low_s;
  document["mtbf_high_seconds"] = advice.mtbf_high_s;
  document["waste_at_mtbf_low"] = advice.waste_at_mtbf_low;
  document["waste_at_mtbf_high"] = advice.waste_at_mtbf_high;
  document["step_seconds"] = input.costs.step_s == 0 ? base::Json() : base::Json(input.costs.step_s);
  document["costs"] = base::Json::array_of(advice.costs, [](const CostShare& part) -> base::Json {
    return {{"name", cairn::name_of(part.term)},
            {"seconds", part.seconds},
            {"waste", part.waste},
            {"saved_if_halved", part.saved_if_halved}};
  });
  document["lost_work"] = advice.lost_work;
  document["first_order_waste"] = advice.first_order_waste;
  document["mend_first"] = cairn::name_of(advice.mend_first);
  document["formulas"] = base::Json::array_of(advice.formulas, [](const AdviceFormula& formula) -> base::Json {
    base::Json row = {{"name", formula.name}, {"source", formula.source}};
    row.update(json_of(formula.interval));
    return row;
  });
  document["guide_failures"] = advice.guide_failures == 0 ? base::Json() : base::Json(advice.guide_failures);
  document["notes"] = notes_of(basis, advice);
  print_json(output, document);
}

}  // namespace

AdviceInput advice_input(const AdviseOptions& options, const AdviceInput& measured) {
  AdviceInput input = measured;
  RunCosts& costs = input.costs;
  costs.stall_s = options.stall_s.value_or(costs.stall_s);
  costs.background_s = options.background_s.value_or(costs.background_s);
  costs.load_s = options.load_s.value_or(costs.load_s);
  costs.restart_s = options.restart_s.value_or(costs.restart_s);
  costs.step_s = options.step_s.value_or(costs.step_s);
  input.run_s = options.run_s.value_or(input.run_s);
  if (options.failures.has_value() != (options.hours != 0)) {
    throw Error(ErrorKind::kUsage, "--failures needs --hours: in how many hours were they counted?");
  }
  FailureData given;
  given.mtbf_s = options.mtbf_s;
  given.nodes = options.nodes;
  if (options.rate != 0) given.per_1000_node_days = options.rate;
  given.observed = options.failures;
  if (options.hours != 0) given.observed_hours = options.hours;
  if (given.mtbf_s || given.nodes || given.observed) input.failures = given;
  if (!input.failures.mtbf_s && !input.failures.nodes && !input.failures.observed) {
    throw Error(ErrorKind::kUsage,
                "nothing says how often the job fails: give --mtbf, or --nodes and --rate, or --failures and --hours");
  }
  return input;
}

AdviceBasis advice_basis(const AdviseOptions& options, const RunHistory& history) {
  AdviceBasis basis;
  if (!options.stall_s && history.stall_s.calls == 0) {
    throw Error(ErrorKind::kUsage,
                options.root.empty()
                    ? "nothing says how long a save stalls the program: give --stall, or the root of a run"
                    : fmt::format("the log of '{}' has no save; give --stall", base::printable(options.root)));
  }
  basis.input = advice_input(options, history.advice_input());
  basis.notes = notes_of_sources(options, history);
  const bool has_own_failures = options.mtbf_s || options.nodes || options.failures;
  if (!has_own_failures && basis.input.failures.observed) {
    basis.notes.push_back(fmt::format("failures: {} in {} of work and saves, from the log",
                                      counted(*basis.input.failures.observed, "restart"),
                                      shown_duration(history.up_s)));
    basis.notes.insert(basis.notes.end(), history.notes.begin(), history.notes.end());
  }
  return basis;
}

int run_advise(Context& context, const AdviseOptions& options) {
  comm::agree_on_root(context.communicator, "advise", 0, [&] {
    const RunHistory history = options.root.empty() ? RunHistory() : history_of(options.root);
    const AdviceBasis basis = advice_basis(options, history);
    const Advice advice = cairn::advise(basis.input);
    if (options.json) {
      print_document(context.output, basis, advice);
    } else {
      print_text(context.output, basis, advice);
    }
  });
  return kExitGood;
}

}  // namespace cairn::cli
