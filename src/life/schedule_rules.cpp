#include "life/schedule_rules.hpp"

#include <fmt/chrono.h>
#include <fmt/core.h>
#include <string.h>

#include <algorithm>
#include <cmath>

#include "base/log.hpp"
#include "base/text.hpp"
#include "cairn/error.hpp"
#include "os/clock.hpp"

namespace cairn::life {
namespace {

/// A stall of 0, as a clock may show it, has no best interval.
constexpr double kLeastStall = 1e-6;
constexpr std::size_t kMeasured = 8;

void check_seconds(const char* name, double seconds) {
  if (seconds >= 0 && seconds <= os::kLongestWaitS) return;
  throw Error(ErrorKind::kUsage, fmt::format("ScheduleOptions::{} is {}; give seconds from 0 to {}", name, seconds,
                                             base::group_digits(static_cast<std::uint64_t>(os::kLongestWaitS))));
}

std::string text_of_limit(std::int64_t seconds_since_1970) {
  return fmt::format("{:%Y-%m-%d %H:%M:%S} UTC", fmt::gmtime(static_cast<std::time_t>(seconds_since_1970)));
}

}  // namespace

std::string name_of_signal(int signal) {
  const char* const name = ::sigabbrev_np(signal);
  return name != nullptr ? fmt::format("SIG{}", name) : fmt::format("signal {}", signal);
}

ScheduleRules::ScheduleRules(const ScheduleOptions& options, std::optional<double> time_limit,
                             const std::optional<Times>& now)
    : options_(options), time_limit_(time_limit) {
  check_seconds("every_seconds", options.every_seconds);
  check_seconds("limit_margin_s", options.limit_margin_s);
  if (now) last_due_ = now->steady;
  if (!options.failures) return;
  RunCosts costs = options.costs;
  costs.stall_s = std::max(costs.stall_s, kLeastStall);
  unmeasured_ = advise({costs, *options.failures, 0}).mtbf_s / 100;  // throws for failures that make no sense
  advised_ = 0;
  if (options.costs.stall_s > 0) advise_again();
}

/// Takes the means of the last saves. If the job could make no progress at these costs, the interval stays.
void ScheduleRules::advise_again() {
  RunCosts costs = options_.costs;
  if (!measured_.empty()) {
    costs.stall_s = costs.background_s = 0;
    for (const RunCosts& save : measured_) {
      costs.stall_s += save.stall_s / static_cast<double>(measured_.size());
      costs.background_s += save.background_s / static_cast<double>(measured_.size());
    }
    costs.stall_s = std::max(costs.stall_s, kLeastStall);
  }
  try {
    advised_ = advise({costs, *options_.failures, 0}).best.seconds;
  } catch (const Error& error) {
    base::log_warning(fmt::format("the interval between saves is not advised anew: {}", error.what()));
  }
}

Due ScheduleRules::decide(std::uint64_t step, std::span<const std::int64_t> agreed, const std::optional<Times>& now) {
  Due due;
  if (!agreed.empty()) {
    const std::int64_t highest = agreed[kAskStep];
    const std::int64_t lowest = kMostStep - agreed[kAskStepBack];
    if (lowest != highest) {
      throw Error(ErrorKind::kUsage,
                  fmt::format("the ranks looked at the schedule at different steps, {} to {}: call look() once after "
                              "each step, on all ranks",
                              lowest, highest));
    }
    if (agreed[kAskTime] != 0) {
      due = {true, false,
             fmt::format("{} s after the last save was due",
                         base::group_digits(static_cast<std::uint64_t>(agreed[kAskTime])))};
    }
    if (agreed[kAskSave] != 0) due = {true, false, name_of_signal(static_cast<int>(agreed[kAskSave]))};
  }
  if (options_.every_steps != 0 && step % options_.every_steps == 0) {
    due = {true, false, fmt::format("step {} is a multiple of {}", step, options_.every_steps)};
  }
  if (!agreed.empty()) {
    if (agreed[kAskLimit] != 0) {
      due = {true, true, fmt::format("the job's time limit, {}, is near", text_of_limit(agreed[kAskLimit]))};
    }
    if (agreed[kAskStop] != 0) due = {true, true, name_of_signal(static_cast<int>(agreed[kAskStop]))};
  }
  saves_now_ = due.save;
  if (now && due.save) last_due_ = now->steady;
  if (due.save && advised_ && *advised_ == 0) advised_ = unmeasured_;
  return due;
}

Asked ScheduleRules::ask(std::uint64_t step, int save_signal, int stop_signal, const std::optional<Times>& now) {
  Asked asked{};
  asked[kAskStep] = static_cast<std::int64_t>(std::min<std::uint64_t>(step, kMostStep));
  asked[kAskStepBack] = kMostStep - asked[kAskStep];
  asked[kAskSave] = saves_now_ ? 0 : save_signal;
  asked[kAskStop] = stop_signal;
  if (!now) return asked;
  if (last_look_) longest_step_ = std::max(longest_step_, now->steady - *last_look_);
  last_look_ = now->steady;
  const double since = now->steady - last_due_;
  if ((options_.every_seconds > 0 && since >= options_.every_seconds) || (advised_ && since >= *advised_)) {
    asked[kAskTime] = std::max<std::int64_t>(1, std::llround(since));
  }
  if (time_limit_ && now->wall >= *time_limit_ - seconds_before_limit()) {
    asked[kAskLimit] = std::max<std::int64_t>(1, std::llround(*time_limit_));
  }
  return asked;
}

void ScheduleRules::saved(const Report& report) {
  longest_save_ = std::max(longest_save_, report.seconds);
  if (!options_.failures) return;
  RunCosts costs;
  costs.stall_s = report.stall ? report.stall->seconds : report.seconds;
  costs.background_s = std::max(0.0, report.seconds - costs.stall_s);
  measured_.push_back(costs);
  if (measured_.size() > kMeasured) measured_.pop_front();
  advise_again();
}

/// The next look, a step later, decides; then the save follows.
double ScheduleRules::seconds_before_limit() const {
  return options_.limit_margin_s + longest_step_ + 2 * longest_save_;
}

}  // namespace cairn::life
