#include "bench/record.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <functional>

#include "base/text.hpp"

namespace cairn::bench {
namespace {

Summary over(const Operation& operation, const std::function<double(const Sample&)>& value) {
  std::vector<double> values;
  for (const Sample& sample : operation.samples) values.push_back(value(sample));
  return summarise(std::move(values));
}

Summary over_ceilings(const Operation& operation, const std::function<double(const Rate&)>& value) {
  std::vector<double> values;
  for (const Sample& sample : operation.samples) {
    values.push_back(value(sample.ceiling_before));
    values.push_back(value(sample.ceiling_after));
  }
  return summarise(std::move(values));
}

/// The phase of a repeat; empty if the repeat lacks it.
Phase find(const Sample& sample, const std::string& name) {
  const auto at = std::ranges::find(sample.phases, name, &Phase::name);
  return at == sample.phases.end() ? Phase() : *at;
}

double rate(const Operation& operation, const Sample& sample) {
  return sample.seconds > 0 ? static_cast<double>(operation.bytes) / sample.seconds : 0;
}

}  // namespace

std::vector<const Operation*> operations_of(const Run& run) {
  std::vector<const Operation*> all = {&run.save};
  for (const Operation& load : run.loads) all.push_back(&load);
  return all;
}

std::string_view name_of(Kind kind) { return kind == Kind::kSave ? "save" : "load"; }

std::string engine_text(const Operation& operation) {
  std::string out = operation.engine + ": " + operation.engine_reason;
  if (!operation.engine_hints.empty()) out += "; hints";
  for (const auto& [key, value] : operation.engine_hints) out += " " + key + "=" + value;
  return out;
}

Summary seconds_of(const Operation& operation) {
  return over(operation, [](const Sample& sample) { return sample.seconds; });
}

Summary first_seconds_of(const Operation& operation) {
  return over(operation, [](const Sample& sample) { return sample.seconds_first; });
}

Summary rate_of(const Operation& operation) {
  return over(operation, [&](const Sample& sample) { return rate(operation, sample); });
}

Summary ceiling_of(const Operation& operation) {
  return over_ceilings(operation, [](const Rate& ceiling) { return ceiling.bytes_per_second(); });
}

Summary copied_ceiling_of(const Operation& operation) {
  return over(operation, [](const Sample& sample) { return sample.copied_ceiling.bytes_per_second(); });
}

Summary share_of_copied_ceiling(const Operation& operation) {
  return over(operation, [&](const Sample& sample) {
    const double ceiling = sample.copied_ceiling.bytes_per_second();
    return ceiling > 0 ? rate(operation, sample) / ceiling : 0;
  });
}

Summary busy_of(const Operation& operation) {
  return over(operation, [](const Sample& sample) { return sample.busy_share; });
}

Summary ceiling_busy_of(const Operation& operation) {
  return over_ceilings(operation, [](const Rate& ceiling) { return ceiling.busy_share; });
}

double share_of_ceiling(const Operation& operation, const Sample& sample) {
  const double ceiling = (sample.ceiling_before.bytes_per_second() + sample.ceiling_after.bytes_per_second()) / 2;
  return ceiling > 0 ? rate(operation, sample) / ceiling : 0;
}

Summary share_of_ceiling(const Operation& operation) {
  return over(operation, [&](const Sample& sample) { return share_of_ceiling(operation, sample); });
}

Summary phase_seconds(const Operation& operation, const std::string& phase) {
  return over(operation, [&](const Sample& sample) { return find(sample, phase).seconds_max; });
}

Summary phase_first_seconds(const Operation& operation, const std::string& phase) {
  return over(operation, [&](const Sample& sample) { return find(sample, phase).seconds_min; });
}

Summary phase_share(const Operation& operation, const std::string& phase) {
  return over(operation, [&](const Sample& sample) {
    return sample.seconds > 0 ? find(sample, phase).seconds_max / sample.seconds : 0;
  });
}

std::uint64_t phase_bytes(const Operation& operation, const std::string& phase) {
  return operation.samples.empty() ? 0 : find(operation.samples.back(), phase).bytes;
}

FixedCosts fixed_costs_of(const Operation& operation) {
  FixedCosts costs;
  double all = 0;
  for (const std::string& phase : phases_of(operation)) {
    const double seconds = phase_seconds(operation, phase).median;
    all += seconds;
    if (phase == "plan" || phase == "open" || phase == "commit") costs.seconds += seconds;
  }
  const double rest = all - costs.seconds;
  if (all > 0) costs.share = costs.seconds / all;
  if (rest > 0) {
    const double needed = costs.seconds * (1 - kFixedShare) / kFixedShare;
    costs.size_bytes = static_cast<std::uint64_t>(static_cast<double>(operation.bytes) * needed / rest);
  }
  return costs;
}

std::string size_note(const Operation& operation) {
  const FixedCosts costs = fixed_costs_of(operation);
  if (costs.share <= kFixedShare || costs.size_bytes == 0) return {};
  return fmt::format(
      "{:.0f} % of the {}'s time, {:.3f} s, are plan, open and commit, which cost the same whatever the size: "
      "shares of raw say little below about {}, where they are {:.0f} %",
      100 * costs.share, name_of(operation.kind), costs.seconds, base::format_size(costs.size_bytes),
      100 * kFixedShare);
}

std::vector<std::string> phases_of(const Operation& operation) {
  std::vector<std::string> names;
  for (const Sample& sample : operation.samples) {
    for (const Phase& phase : sample.phases) {
      if (std::find(names.begin(), names.end(), phase.name) == names.end()) names.push_back(phase.name);
    }
  }
  return names;
}

Summary rates_of(const std::vector<Rate>& rates) {
  std::vector<double> values;
  for (const Rate& rate : rates) values.push_back(rate.bytes_per_second());
  return summarise(std::move(values));
}

}  // namespace cairn::bench
