#include "cairn/schedule.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "base/text.hpp"
#include "comm/agree.hpp"
#include "comm/at_finalize.hpp"
#include "comm/mpi.hpp"
#include "comm/running_maximum.hpp"
#include "life/schedule_rules.hpp"
#include "life/signals.hpp"
#include "life/time_limit.hpp"

namespace cairn {
namespace {

double seconds_since_1970(std::chrono::system_clock::time_point time) {
  return std::chrono::duration<double>(time.time_since_epoch()).count();
}

std::string list_of(std::vector<int> signals) {
  std::ranges::sort(signals);
  return base::joined(std::span<const int>(signals));
}

std::string text_of(const RunCosts& costs) {
  return fmt::format("stall {}, background {}, load {}, restart {}, step {} s", costs.stall_s, costs.background_s,
                     costs.load_s, costs.restart_s, costs.step_s);
}

std::string text_of(const std::optional<FailureData>& failures) {
  if (!failures) return "none";
  const auto text = [](const auto& value) { return value ? fmt::format("{}", *value) : std::string("unset"); };
  return fmt::format("mtbf_s {}, nodes {}, per_1000_node_days {}, observed {}, observed_hours {}",
                     text(failures->mtbf_s), text(failures->nodes), text(failures->per_1000_node_days),
                     text(failures->observed), text(failures->observed_hours));
}

/// The limit by the options of this rank, which is rank 0.
std::optional<double> find_limit(const ScheduleOptions& options) {
  if (!options.meets_time_limit) return std::nullopt;
  if (options.time_limit) return seconds_since_1970(*options.time_limit);
  return life::time_limit_of_job();
}

}  // namespace

struct Schedule::State {
  State(comm::Communicator& ours, const ScheduleOptions& options)
      : has_clock(ours.rank() == 0),
        limit(has_clock ? find_limit(options) : std::nullopt),
        rules(options, limit, times()),
        save_signals(options.save_signals),
        stop_signals(options.stop_signals),
        maximum(ours, life::kAsks),
        at_finalize([this] { maximum.end(kPatienceS); }) {}

  [[nodiscard]] std::optional<life::Times> times() const {
    if (!has_clock) return std::nullopt;
    const std::chrono::duration<double> steady = std::chrono::steady_clock::now().time_since_epoch();
    return life::Times{steady.count(), seconds_since_1970(std::chrono::system_clock::now())};
  }

  static constexpr double kPatienceS = 10;  ///< for ranks that do not look any more

  std::unique_ptr<comm::Communicator> communicator;  ///< first: the others use it
  bool has_clock;
  std::optional<double> limit;
  life::ScheduleRules rules;
  life::CountedSignals save_signals;
  life::CountedSignals stop_signals;
  int stop_signal = 0;  ///< that this rank received; stays
  comm::RunningMaximum maximum;
  comm::AtFinalize at_finalize;
};

Schedule::Schedule(MPI_Comm given, const ScheduleOptions& options) {
  auto communicator = comm::duplicate_mpi(given, options.waiting);
  comm::Communicator& ours = *communicator;
  comm::agree_on_values(ours, "option", [&](std::vector<comm::NamedValue>& values) {
    values.push_back({"every_steps", std::to_string(options.every_steps)});
    values.push_back({"every_seconds", fmt::format("{}", options.every_seconds)});
    values.push_back({"failures", text_of(options.failures)});
    values.push_back({"costs", text_of(options.costs)});
    values.push_back({"save_signals", list_of(options.save_signals)});
    values.push_back({"stop_signals", list_of(options.stop_signals)});
    values.push_back({"meets_time_limit", options.meets_time_limit ? "true" : "false"});
    values.push_back({"limit_margin_s", fmt::format("{}", options.limit_margin_s)});
  });
  comm::agree(ours, "make the schedule", [&] { state_ = std::make_unique<State>(ours, options); });
  state_->communicator = std::move(communicator);
}

Schedule::~Schedule() = default;
Schedule::Schedule(Schedule&&) noexcept = default;
Schedule& Schedule::operator=(Schedule&&) noexcept = default;

Due Schedule::look(std::uint64_t step) {
  State& state = *state_;
  const std::optional<life::Times> now = state.times();
  std::span<const std::int64_t> agreed;
  if (state.maximum.is_running()) agreed = state.maximum.read();
  Due due = state.rules.decide(step, agreed, now);
  const int save_signal = state.save_signals.take();
  if (const int signal = state.stop_signals.take(); signal != 0) state.stop_signal = signal;
  state.maximum.begin(state.rules.ask(step, save_signal, state.stop_signal, now));
  return due;
}

void Schedule::saved(const Report& report) {
  if (state_->has_clock && !report.directory.empty()) state_->rules.saved(report);
}

std::optional<std::chrono::system_clock::time_point> Schedule::time_limit() const {
  if (!state_->limit) return std::nullopt;
  const auto since =
      std::chrono::duration_cast<std::chrono::system_clock::duration>(std::chrono::duration<double>(*state_->limit));
  return std::chrono::system_clock::time_point(since);
}

}  // namespace cairn
