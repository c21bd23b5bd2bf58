#include "life/history.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "base/text.hpp"
#include "cairn/error.hpp"
#include "format/save_rate.hpp"
#include "os/file.hpp"
#include "os/neighbour.hpp"
#include "root/run_log.hpp"

namespace cairn {
namespace {

constexpr std::size_t kNewest = 100;  ///< calls of which a median is taken

/// The median of the newest values; else the mean of a measure of sums.
MeasuredFigure figure_of(std::vector<double> values, const format::LogMeasure& sums) {
  MeasuredFigure figure;
  figure.calls = values.size() + sums.count;
  if (values.size() > kNewest) values.erase(values.begin(), values.end() - static_cast<std::ptrdiff_t>(kNewest));
  if (!values.empty()) {
    const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
    std::nth_element(values.begin(), middle, values.end());
    figure.median = *middle;
  } else if (sums.count != 0) {
    figure.median = sums.sum / static_cast<double>(sums.count);
  }
  return figure;
}

/// The run of the last good save.
std::string run_of(const format::RunLog& log) {
  if (const std::optional<format::LogCall> call = format::last_save(log)) return call->run_id;
  const auto is_sum = [](const format::LogSum& sum) { return sum.what == format::kLogSave && !sum.run_id.empty(); };
  const auto sum = std::find_if(log.sums.rbegin(), log.sums.rend(), is_sum);
  return sum == log.sums.rend() ? "" : sum->run_id;
}

/// Collects the figures of one run.
class History {
 public:
  explicit History(std::string run) { history_.run_id = std::move(run); }

  void add(const format::LogCall& call) {
    const bool is_save = call.what == format::kLogSave;
    const bool is_load = call.what == format::kLogLoad;
    if (!is_save && !is_load) return;
    if (!call.is_good()) {
      history_.bad += call.is_bad() ? 1 : 0;
      return;
    }
    if (call.run_id != history_.run_id) return;
    if (is_load) {
      ++history_.loads;
      load_.push_back(call.seconds);
      return;
    }
    const double stall = call.is_async ? call.stall_seconds : call.seconds;
    ++history_.saves;
    history_.programs += call.is_first ? 1 : 0;
    history_.up_s += call.work_seconds + stall;
    stall_.push_back(stall);
    if (call.is_async) background_.push_back(call.background_seconds);
    if (!call.is_first) interval_.push_back(call.work_seconds);
  }

  void add(const format::LogSum& sum) {
    const bool is_save = sum.what == format::kLogSave;
    if (!is_save && sum.what != format::kLogLoad) return;
    history_.bad += sum.bad();
    if (sum.run_id != history_.run_id) return;
    (is_save ? history_.saves : history_.loads) += sum.calls(format::kLogGood);
    const auto measure = [&](const char* key) {
      const auto found = sum.measures.find(key);
      return found == sum.measures.end() ? format::LogMeasure() : found->second;
    };
    if (!is_save) return load_sums_.add(measure("seconds"));
    history_.programs += sum.programs;
    const format::LogMeasure work = measure("work_seconds");
    const format::LogMeasure stall = measure(sum.measures.contains("stall_seconds") ? "stall_seconds" : "seconds");
    history_.up_s += work.sum + stall.sum;
    stall_sums_.add(stall);
    background_sums_.add(measure("background_seconds"));
    interval_sums_.add(work);
  }

  RunHistory take() {
    history_.stall_s = figure_of(std::move(stall_), stall_sums_);
    history_.background_s = figure_of(std::move(background_), background_sums_);
    history_.load_s = figure_of(std::move(load_), load_sums_);
    history_.interval_s = figure_of(std::move(interval_), interval_sums_);
    return std::move(history_);
  }

 private:
  RunHistory history_;
  std::vector<double> stall_, background_, load_, interval_;
  format::LogMeasure stall_sums_, background_sums_, load_sums_, interval_sums_;
};

}  // namespace

AdviceInput RunHistory::advice_input() const {
  AdviceInput input;
  input.costs.stall_s = stall_s.median;
  input.costs.background_s = background_s.median;
  input.costs.load_s = load_s.median;
  if (saves >= 2 && up_s > 0) {
    constexpr double kHour = 3600;
    input.failures.observed = programs == 0 ? 0 : programs - 1;
    input.failures.observed_hours = up_s / kHour;
  }
  return input;
}

namespace life {

format::RunLog log_of(const std::filesystem::path& root) {
  if (!std::filesystem::is_directory(root)) {
    if (!os::exists(root)) throw Error(ErrorKind::kNotFound, os::does_not_exist(root));
    throw Error(ErrorKind::kNotFound, fmt::format("'{}' is not a directory; give the root of a run's checkpoints",
                                                  base::printable(root.string())));
  }
  return root::read_run_log(root);
}

RunHistory history_in(const format::RunLog& log) {
  History collected(run_of(log));
  for (const format::LogSum& sum : log.sums) collected.add(sum);
  for (const format::LogCall& call : log.calls) collected.add(call);
  RunHistory history = collected.take();
  if (history.saves == 0) return history;
  if (history.programs > 1) {
    history.notes.push_back(fmt::format("each of {} counts as a failure, also a planned one",
                                        base::counted(history.programs - 1, "restart")));
  }
  if (history.loads == 0) history.notes.emplace_back("the log has no load: its seconds are not known");
  return history;
}

}  // namespace life

RunHistory history_of(const std::filesystem::path& root) { return life::history_in(life::log_of(root)); }

}  // namespace cairn
