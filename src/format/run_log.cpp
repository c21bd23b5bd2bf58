#include "format/run_log.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <set>
#include <tuple>
#include <variant>

#include "base/digits.hpp"
#include "base/json.hpp"
#include "base/text.hpp"
#include "cairn/error.hpp"
#include "format/limits.hpp"

namespace cairn::format {
namespace {

using base::Json;

constexpr const char* kSum = "sum";
constexpr std::size_t kTextBytes = 500;
constexpr std::size_t kListed = 16;         ///< codecs, phases and skipped steps of a line
constexpr std::size_t kListedPruned = 256;  ///< pruned steps of a line
constexpr std::int64_t kDayMs = 24 * 3600 * 1000;

// Writing.

/// Microseconds are exact enough, and make short lines.
Json rounded(double value) {
  constexpr double kPerUnit = 1e6;
  return std::isfinite(value) ? std::round(value * kPerUnit) / kPerUnit : 0.0;
}

void set_text(Json& line, const char* key, const std::string& text) {
  if (!text.empty()) line[key] = base::one_line(text, kTextBytes);
}

void set_number(Json& line, const char* key, std::uint64_t number) {
  if (number != 0) line[key] = number;
}

void set_steps(Json& line, const char* key, const std::vector<std::uint64_t>& steps, std::size_t most) {
  if (steps.empty()) return;
  Json list = Json::array();
  for (std::size_t i = 0; i < std::min(steps.size(), most); ++i) list.push_back(steps[i]);
  line[key] = std::move(list);
}

Json begin_line(std::int64_t time_ms, const std::string& what) {
  Json line = Json::object();
  line["version"] = kRunLogVersion;
  line["time"] = log_time(time_ms);
  line["what"] = what;
  return line;
}

std::string text_of(const Json& line) { return line.dump({.is_lenient = true}); }

// Reading. A key of another type counts as missing.

std::string text_at(const Json& line, const char* key) {
  const Json* value = line.find(key);
  return value != nullptr && value->is_string() ? value->text() : "";
}

std::optional<std::uint64_t> number_at(const Json& line, const char* key) {
  const Json* value = line.find(key);
  if (value == nullptr || !value->is_number_unsigned()) return std::nullopt;
  return value->whole_number();
}

double real_in(const Json& value) {
  return value.is_number_unsigned() || value.is_number_float() ? value.real_number() : 0;
}

double real_at(const Json& line, const char* key) {
  const Json* value = line.find(key);
  return value == nullptr ? 0 : real_in(*value);
}

std::vector<std::uint64_t> steps_at(const Json& line, const char* key) {
  std::vector<std::uint64_t> steps;
  if (const Json* list = line.find(key); list != nullptr && list->is_array()) {
    for (const Json& step : list->elements()) {
      if (step.is_number_unsigned()) steps.push_back(step.whole_number());
    }
  }
  return steps;
}

LogCall call_in(const Json& line) {
  LogCall call;
  call.what = text_at(line, "what");
  call.step = number_at(line, "step");
  call.outcome = text_at(line, "outcome");
  if (const Json* error = line.find("error")) {
    call.error_kind = text_at(*error, "kind");
    call.error = text_at(*error, "text");
  }
  call.seconds = real_at(line, "seconds");
  if (const Json* phases = line.find("phases"); phases != nullptr && phases->is_object()) {
    for (const Json::Member& phase : phases->items()) call.phases.emplace_back(phase.key, real_in(phase.value));
  }
  call.bytes = number_at(line, "bytes").value_or(0);
  call.files = number_at(line, "files").value_or(0);
  call.reused_bytes = number_at(line, "reused_bytes").value_or(0);
  call.ranks = number_at(line, "ranks").value_or(0);
  call.nodes = number_at(line, "nodes").value_or(0);
  call.engine = text_at(line, "engine");
  if (const Json* codecs = line.find("codecs"); codecs != nullptr && codecs->is_object()) {
    for (const Json::Member& codec : codecs->items()) {
      if (codec.value.is_string()) call.codecs[codec.key] = codec.value.text();
    }
  }
  call.ratio = real_at(line, "ratio");
  call.is_async = line.contains("stall_seconds");
  call.stall_seconds = real_at(line, "stall_seconds");
  call.wait_seconds = real_at(line, "wait_seconds");
  call.background_seconds = real_at(line, "background_seconds");
  const Json* first = line.find("first");
  call.is_first = first != nullptr && first->is_boolean() && first->boolean();
  call.work_seconds = real_at(line, "work_seconds");
  call.skipped = steps_at(line, "skipped");
  call.pruned = steps_at(line, "pruned");
  call.faults = number_at(line, "faults").value_or(0);
  call.position_bytes = number_at(line, "position_bytes").value_or(0);
  call.manifest = text_at(line, "manifest");
  call.run_id = text_at(line, "run_id");
  call.tool = text_at(line, "tool");
  return call;
}

LogSum sum_in(const Json& line) {
  LogSum sum;
  sum.what = text_at(line, "of");
  sum.run_id = text_at(line, "run_id");
  if (const Json* outcomes = line.find("outcomes"); outcomes != nullptr && outcomes->is_object()) {
    for (const Json::Member& outcome : outcomes->items()) {
      if (outcome.value.is_number_unsigned()) sum.outcomes[outcome.key] = outcome.value.whole_number();
    }
  }
  sum.lowest_step = number_at(line, "lowest_step");
  sum.highest_step = number_at(line, "highest_step");
  if (const Json* measures = line.find("measures"); measures != nullptr && measures->is_object()) {
    for (const Json::Member& measure : measures->items()) {
      sum.measures[measure.key] = {number_at(measure.value, "count").value_or(0), real_at(measure.value, "sum"),
                                   real_at(measure.value, "min"), real_at(measure.value, "max")};
    }
  }
  sum.programs = number_at(line, "programs").value_or(0);
  sum.skipped = number_at(line, "skipped").value_or(0);
  sum.faults = number_at(line, "faults").value_or(0);
  return sum;
}

struct Damaged {};
struct Newer {};
using Line = std::variant<Damaged, Newer, LogCall, LogSum>;

Line read_line(std::string_view text) {
  try {
    const Json line = Json::parse(text, kRunLogFile);
    const auto version = number_at(line, "version");
    const auto time = parse_log_time(text_at(line, "time"));
    if (!version || *version == 0) return Damaged{};
    if (*version > static_cast<std::uint64_t>(kRunLogVersion)) return Newer{};
    if (!time) return Damaged{};
    if (text_at(line, "what") != kSum) {
      LogCall call = call_in(line);
      call.time_ms = *time;
      if (call.what.empty()) return Damaged{};
      return call;
    }
    LogSum sum = sum_in(line);
    sum.first_ms = *time;
    sum.last_ms = parse_log_time(text_at(line, "until")).value_or(*time);
    return sum;
  } catch (const Error&) {
    return Damaged{};
  }
}

/// Calls visit(line) for each line that is not empty, also for a last one without a line end.
template <class Visit>
void for_each_line(std::string_view text, Visit visit) {
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    if (end != 0) visit(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
}

// Aggregating.

/// Sums of the same period, `what` and run.
class Sums {
 public:
  void set_period(std::int64_t days) { period_ms_ = days * kDayMs; }
  void ignore_runs() { has_runs_ = false; }

  template <class Item>
  void add(const Item& item, std::int64_t time_ms, const std::string& what, const std::string& run_id) {
    const std::int64_t period = time_ms / period_ms_ - (time_ms % period_ms_ < 0 ? 1 : 0);
    LogSum& sum = sums_[{period, what, has_runs_ ? run_id : ""}];
    const bool is_new = sum.outcomes.empty();
    if (is_new) {
      sum.what = what;
      sum.run_id = has_runs_ ? run_id : "";
      sum.first_ms = time_ms;
      sum.last_ms = time_ms;
    }
    sum.add(item);
  }
  [[nodiscard]] std::size_t size() const { return sums_.size(); }
  /// By time.
  [[nodiscard]] std::vector<LogSum> take() {
    std::vector<LogSum> all;
    for (auto& [key, sum] : sums_) all.push_back(std::move(sum));
    sums_.clear();
    std::ranges::stable_sort(all, {}, &LogSum::first_ms);
    return all;
  }

 private:
  std::int64_t period_ms_ = kDayMs;
  bool has_runs_ = true;
  std::map<std::tuple<std::int64_t, std::string, std::string>, LogSum> sums_;
};

/// At most `most` sums: the newer half stays, and the older ones are combined until there are few enough.
std::vector<LogSum> fewer(std::vector<LogSum> sums, std::size_t most) {
  constexpr std::int64_t kLongestDays = 1 << 20;
  if (sums.size() <= most) return sums;
  const auto newer = sums.end() - static_cast<std::ptrdiff_t>(most / 2);
  for (std::int64_t days = 2;; days *= 2) {
    Sums combined;
    combined.set_period(std::min(days, kLongestDays));
    if (days > kLongestDays) combined.ignore_runs();
    for (auto sum = sums.begin(); sum != newer; ++sum) combined.add(*sum, sum->first_ms, sum->what, sum->run_id);
    if (combined.size() > most - most / 2 && days <= kLongestDays) continue;
    std::vector<LogSum> all = combined.take();
    std::move(newer, sums.end(), std::back_inserter(all));
    return all;
  }
}

}  // namespace

void LogMeasure::add(const LogMeasure& other) {
  if (other.count == 0) return;
  min = count == 0 ? other.min : std::min(min, other.min);
  max = count == 0 ? other.max : std::max(max, other.max);
  count += other.count;
  sum += other.sum;
}

void LogSum::add(const LogCall& call) {
  LogSum one;
  one.first_ms = call.time_ms;
  one.last_ms = call.time_ms;
  one.outcomes[call.outcome] = 1;
  one.lowest_step = call.step;
  one.highest_step = call.step;
  one.programs = call.is_first ? 1 : 0;
  one.skipped = call.skipped.size();
  one.faults = call.faults;
  if (call.is_good()) {
    one.measures["seconds"].add(call.seconds);
    one.measures["bytes"].add(static_cast<double>(call.bytes));
    if (call.is_async) {
      one.measures["stall_seconds"].add(call.stall_seconds);
      one.measures["background_seconds"].add(call.background_seconds);
    }
    if (call.what == kLogSave) one.measures["work_seconds"].add(call.work_seconds);
  }
  if (outcomes.empty()) first_ms = last_ms = call.time_ms;
  add(one);
}

void LogSum::add(const LogSum& other) {
  if (outcomes.empty()) {
    first_ms = other.first_ms;
    last_ms = other.last_ms;
  }
  first_ms = std::min(first_ms, other.first_ms);
  last_ms = std::max(last_ms, other.last_ms);
  for (const auto& [outcome, count] : other.outcomes) outcomes[outcome] += count;
  for (const auto& [key, measure] : other.measures) measures[key].add(measure);
  if (other.lowest_step && (!lowest_step || *other.lowest_step < *lowest_step)) lowest_step = other.lowest_step;
  if (other.highest_step && (!highest_step || *other.highest_step > *highest_step)) highest_step = other.highest_step;
  programs += other.programs;
  skipped += other.skipped;
  faults += other.faults;
}

std::uint64_t LogSum::calls() const {
  std::uint64_t all = 0;
  for (const auto& outcome : outcomes) all += outcome.second;
  return all;
}

std::uint64_t LogSum::calls(const std::string& outcome) const {
  const auto found = outcomes.find(outcome);
  return found == outcomes.end() ? 0 : found->second;
}

std::string encode_log_line(const LogCall& call) {
  Json line = begin_line(call.time_ms, call.what);
  if (call.step) line["step"] = *call.step;
  line["outcome"] = call.outcome;
  if (!call.error_kind.empty() || !call.error.empty()) {
    Json error = Json::object();
    set_text(error, "kind", call.error_kind);
    set_text(error, "text", call.error);
    line["error"] = std::move(error);
  }
  line["seconds"] = rounded(call.seconds);
  if (call.is_async) {
    line["stall_seconds"] = rounded(call.stall_seconds);
    line["wait_seconds"] = rounded(call.wait_seconds);
    line["background_seconds"] = rounded(call.background_seconds);
  }
  if (call.is_first) line["first"] = true;
  if (call.work_seconds != 0) line["work_seconds"] = rounded(call.work_seconds);
  if (!call.phases.empty()) {
    Json phases = Json::object();
    for (std::size_t i = 0; i < std::min(call.phases.size(), kListed); ++i) {
      phases[call.phases[i].first] = rounded(call.phases[i].second);
    }
    line["phases"] = std::move(phases);
  }
  set_number(line, "bytes", call.bytes);
  set_number(line, "files", call.files);
  set_number(line, "reused_bytes", call.reused_bytes);
  set_number(line, "faults", call.faults);
  set_number(line, "ranks", call.ranks);
  set_number(line, "nodes", call.nodes);
  set_text(line, "engine", call.engine);
  if (!call.codecs.empty()) {
    Json codecs = Json::object();
    for (const auto& [section, codec] : call.codecs) {
      if (codecs.size() < kListed) codecs[section] = codec;
    }
    line["codecs"] = std::move(codecs);
  }
  if (call.ratio != 0) line["ratio"] = rounded(call.ratio);
  set_steps(line, "skipped", call.skipped, kListed);
  set_steps(line, "pruned", call.pruned, kListedPruned);
  set_number(line, "position_bytes", call.position_bytes);
  set_text(line, "manifest", call.manifest);
  set_text(line, "run_id", call.run_id);
  set_text(line, "tool", call.tool);
  return text_of(line);
}

std::string encode_log_line(const LogSum& sum) {
  Json line = begin_line(sum.first_ms, kSum);
  line["until"] = log_time(sum.last_ms);
  line["of"] = sum.what;
  line["outcomes"] = sum.outcomes;
  if (sum.lowest_step) line["lowest_step"] = *sum.lowest_step;
  if (sum.highest_step) line["highest_step"] = *sum.highest_step;
  Json measures = Json::object();
  for (const auto& [key, measure] : sum.measures) {
    measures[key] = Json{{"count", measure.count},
                         {"sum", rounded(measure.sum)},
                         {"min", rounded(measure.min)},
                         {"max", rounded(measure.max)}};
  }
  line["measures"] = std::move(measures);
  set_number(line, "programs", sum.programs);
  set_number(line, "skipped", sum.skipped);
  set_number(line, "faults", sum.faults);
  set_text(line, "run_id", sum.run_id);
  return text_of(line);
}

RunLog parse_run_log(std::string_view text) {
  RunLog log;
  for_each_line(text, [&](std::string_view raw) {
    Line line = read_line(raw);
    if (auto* const call = std::get_if<LogCall>(&line)) {
      log.calls.push_back(std::move(*call));
    } else if (auto* const sum = std::get_if<LogSum>(&line)) {
      log.sums.push_back(std::move(*sum));
    } else {
      ++(std::holds_alternative<Newer>(line) ? log.newer : log.damaged);
    }
  });
  return log;
}

std::map<std::uint64_t, StepLog> log_by_step(const RunLog& log) {
  std::map<std::uint64_t, StepLog> steps;
  for (const LogCall& call : log.calls) {
    if (!call.step) continue;
    if (call.is_good(kLogSave)) steps[*call.step] = {call, std::nullopt, std::nullopt};
    if (call.what == kLogVerify || call.what == kLogRepair) {
      StepLog& step = steps[*call.step];
      step.verified = call;
      step.scrubbed.reset();
    }
    if (call.what == kLogScrub) steps[*call.step].scrubbed = call;
  }
  return steps;
}

std::string aggregate_run_log(std::string_view text, const std::function<bool(std::uint64_t step)>& is_there,
                              const LogBound& bound) {
  std::vector<std::string_view> lines;
  for_each_line(text, [&](std::string_view line) { lines.push_back(line); });
  Sums sums;
  std::vector<std::string_view> kept;  // the newest first
  std::set<std::pair<std::string, std::uint64_t>> seen;
  std::size_t newest_left = bound.newest_bytes;
  std::size_t marked_left = bound.marked_bytes;
  const auto keep = [&](std::string_view raw, std::size_t& left) {
    if (raw.size() >= left) return false;
    left -= raw.size() + 1;
    kept.push_back(raw);
    return true;
  };
  bool is_newest = true;
  for (auto raw = lines.rbegin(); raw != lines.rend(); ++raw) {
    const Line line = read_line(*raw);
    if (const auto* const sum = std::get_if<LogSum>(&line)) sums.add(*sum, sum->first_ms, sum->what, sum->run_id);
    if (std::holds_alternative<Newer>(line)) keep(*raw, marked_left);
    const auto* const call = std::get_if<LogCall>(&line);
    if (call == nullptr) continue;
    const bool is_lasting = call->what == kLogSave || call->what == kLogVerify || call->what == kLogRepair;
    const bool is_fact_of_step = call->step && call->is_good() && is_lasting;
    const bool is_last = is_fact_of_step && seen.emplace(call->what, *call->step).second;
    is_newest = is_newest && keep(*raw, newest_left);
    if (is_newest || (is_last && is_there(*call->step) && keep(*raw, marked_left))) continue;
    sums.add(*call, call->time_ms, call->what, call->run_id);
  }
  std::string out;
  for (const LogSum& sum : fewer(sums.take(), bound.sums)) out.append(encode_log_line(sum)).append(1, '\n');
  for (auto raw = kept.rbegin(); raw != kept.rend(); ++raw) out.append(*raw).append(1, '\n');
  return out;
}

std::string log_time(std::int64_t time_ms) {
  using namespace std::chrono;
  const sys_time<milliseconds> time{milliseconds(time_ms)};
  const auto day = floor<days>(time);
  const year_month_day date(day);
  const hh_mm_ss clock(time - day);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z", static_cast<int>(date.year()),
                     static_cast<unsigned>(date.month()), static_cast<unsigned>(date.day()), clock.hours().count(),
                     clock.minutes().count(), clock.seconds().count(), clock.subseconds().count());
}

std::optional<std::int64_t> parse_log_time(std::string_view text) {
  using namespace std::chrono;
  constexpr std::string_view kForm = "0000-00-00T00:00:00.000Z";
  if (text.size() != kForm.size()) return std::nullopt;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool is_good = kForm[i] == '0' ? text[i] >= '0' && text[i] <= '9' : text[i] == kForm[i];
    if (!is_good) return std::nullopt;
  }
  const auto number = [&](std::size_t at, std::size_t digits) {
    int value = 0;
    for (const char digit : text.substr(at, digits)) value = value * 10 + (digit - '0');
    return value;
  };
  const year_month_day date{year(number(0, 4)), month(static_cast<unsigned>(number(5, 2))),
                            day(static_cast<unsigned>(number(8, 2)))};
  const int hour = number(11, 2);
  const int minute = number(14, 2);
  const int second = number(17, 2);
  if (!date.ok() || hour > 23 || minute > 59 || second > 60) return std::nullopt;
  const auto time = sys_days(date).time_since_epoch() + hours(hour) + minutes(minute) + seconds(second);
  return duration_cast<milliseconds>(time).count() + number(20, 3);
}

}  // namespace cairn::format
