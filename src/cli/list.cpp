// Lists a root of checkpoints, and what its log tells.
#include "cli/list.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <iterator>
#include <map>
#include <set>
#include <thread>
#include <utility>

#include "base/text.hpp"
#include "cairn/error.hpp"
#include "cli/arguments.hpp"
#include "cli/json_output.hpp"
#include "cli/progress.hpp"
#include "cli/table.hpp"
#include "comm/agree.hpp"
#include "format/run_log.hpp"
#include "opening/open.hpp"
#include "opening/parts.hpp"
#include "os/errno_class.hpp"
#include "os/file.hpp"
#include "os/interrupt.hpp"
#include "root/pins.hpp"
#include "root/run_log.hpp"

namespace cairn::cli {

using root::RootEntry;

const char* state_of(const RootEntry& entry) {
  if (entry.partial) return "partial";
  if (!entry.is_complete()) return "incomplete";
  if (entry.is_void) return "void";
  return entry.part ? "part" : "complete";
}

namespace {

/// A readable step that Cairn did not write.
struct Foreign {
  std::string dialect;
  std::uint64_t bytes = 0;
  std::uint64_t files = 0;
};

struct Listing {
  std::vector<RootEntry> entries;
  std::map<std::filesystem::path, Foreign> foreign;  ///< by directory
  std::vector<root::Unfinished> unfinished;  ///< unfinished directories of conversions, and of saves outside a root
  std::string hint;                          ///< without any entry: the folders that hold data
  format::RunLog log;
  std::map<std::uint64_t, format::StepLog> by_step;  ///< of `log`
  std::set<std::uint64_t> pins;
  std::optional<std::uint64_t> newest;  ///< the step to resume from
  std::string newest_problem;           ///< the reason why nothing is known of it; empty otherwise

  /// The facts that the log has about the checkpoint with the name of its step; empty if there are none.
  [[nodiscard]] format::StepLog about(const RootEntry& entry) const {
    const auto found = by_step.find(entry.step);
    return entry.partial || found == by_step.end() ? format::StepLog() : found->second;
  }
};

/// "42 s", "5 min", "3 h", "12 d": the time from then to now. A clock that was set back gives "0 s".
std::string words_since(std::int64_t time_ms) {
  struct Unit {
    double seconds;
    const char* name;
  };
  constexpr std::array<Unit, 4> kUnits = {{{86400, "d"}, {3600, "h"}, {60, "min"}, {1, "s"}}};
  const double seconds = std::max(0.0, static_cast<double>(root::unix_time_ms() - time_ms) / 1000);
  for (const Unit& unit : kUnits) {
    if (seconds >= 2 * unit.seconds || unit.seconds == 1)
      return fmt::format("{:.0f} {}", std::floor(seconds / unit.seconds), unit.name);
  }
  return "";
}

/// Age, stall, GiB/s and the last verification of a checkpoint, as cells of the table.
std::array<std::string, 4> cells_of(const format::StepLog& about) {
  std::array<std::string, 4> cells;
  cells.fill("-");
  if (about.saved) {
    cells[0] = words_since(about.saved->time_ms);
    if (about.saved->is_async) cells[1] = fmt::format("{:.2f} s", about.saved->stall_seconds);
    cells[2] = throughput(about.saved->bytes, about.saved->seconds);
  }
  if (about.verified) {
    cells[3] = fmt::format("{}{} ago", about.verified->is_good() ? "" : "bad, ", words_since(about.verified->time_ms));
  }
  return cells;
}

/// "loss=2.34 score=0.8".
std::string words_of(const std::map<std::string, double>& metrics) {
  std::string text;
  for (const auto& [name, value] : metrics) {
    text += fmt::format("{}{}={:.6g}", text.empty() ? "" : " ", base::printable(name), value);
  }
  return text.empty() ? "-" : text;
}

/// "resume", "pinned", both, or "-".
std::string words_of_marks(const Listing& listing, const RootEntry& entry) {
  if (entry.partial) return "-";
  const bool is_newest = listing.newest == entry.step;
  const bool is_pinned = listing.pins.contains(entry.step);
  if (!is_newest && !is_pinned) return "-";
  return fmt::format("{}{}{}", is_newest ? "resume" : "", is_newest && is_pinned ? ", " : "",
                     is_pinned ? "pinned" : "");
}

/// Calls of one kind in a log, also those in its sums.
struct Count {
  std::uint64_t all = 0;
  std::uint64_t good = 0;
};

Count count(const format::RunLog& log, std::string_view what) {
  Count sum;
  for (const format::LogCall& call : log.calls) {
    if (call.what != what) continue;
    ++sum.all;
    sum.good += call.is_good() ? 1 : 0;
  }
  for (const format::LogSum& some : log.sums) {
    if (some.what != what) continue;
    sum.all += some.calls();
    sum.good += some.calls(format::kLogGood);
  }
  return sum;
}

/// The last call that failed or was refused, if it is not in a sum.
const format::LogCall* last_failure(const format::RunLog& log) {
  const auto is_failure = [](const format::LogCall& call) { return !call.error.empty(); };
  const auto found = std::find_if(log.calls.rbegin(), log.calls.rend(), is_failure);
  return found == log.calls.rend() ? nullptr : &*found;
}

/// "log: 12 saves, 1 not good; 3 loads; 2 verifications", or "" without a log.
std::string words_of_log(const format::RunLog& log) {
  std::string text;
  const auto add = [&](const char* what, const char* one) {
    const Count calls = count(log, what);
    if (calls.all == 0) return;
    text += (text.empty() ? "log: " : "; ") + counted(calls.all, one);
    if (calls.good != calls.all) text += fmt::format(", {} not good", group_digits(calls.all - calls.good));
  };
  add(format::kLogSave, "save");
  add(format::kLogLoad, "load");
  add(format::kLogVerify, "verification");
  add(format::kLogPrune, "pruning");
  add(format::kLogRepair, "repair");
  return text;
}

std::string words_of_failure(const format::LogCall& call) {
  const std::string step = call.step ? fmt::format(" of step {}", *call.step) : "";
  return fmt::format("the last that was not good: a {}{}, {} {} ago: {}", base::printable(call.what), step,
                     base::printable(call.outcome), words_since(call.time_ms), one_line(call.error));
}

/// Finds steps of other systems, which contain no files of Cairn. An unreadable step stays incomplete, with a problem.
void look_at_foreign(const ListOptions& options, Listing& listing) {
  std::map<std::uint64_t, std::vector<std::filesystem::path>> parts;  // by step
  const auto add = [&](const RootEntry& entry) {
    if (opening::may_be_foreign(entry)) parts[entry.step].push_back(entry.directory);
  };
  std::ranges::for_each(listing.entries, add);
  for (const std::string& root : options.parts) {
    for (RootEntry& entry : root::list_root(root)) {
      add(entry);
      const auto known = std::ranges::find(listing.entries, entry.step, &RootEntry::step);
      if (known == listing.entries.end()) listing.entries.push_back(std::move(entry));
    }
  }
  std::ranges::stable_sort(listing.entries, {},
                           [](const RootEntry& entry) { return std::pair(entry.partial, entry.step); });
  for (RootEntry& entry : listing.entries) {
    const auto found = parts.find(entry.step);
    if (found == parts.end() || found->second.front() != entry.directory) continue;
    try {
      const opening::OpenCheckpoint opened =
          opening::open_here(found->second, options.follow_links ? opening::Links::kFollow : opening::Links::kInside);
      Foreign& foreign = listing.foreign[entry.directory];
      foreign.dialect = opened.about.dialect;
      foreign.files = opened.stored.files.size();
      for (const format::StoredFile& file : opened.stored.files) foreign.bytes += file.size_bytes;
    } catch (const Error& error) {
      if (os::is_shortage(error)) throw;
      entry.problem += fmt::format("; {}", error.what());
    }
  }
}

/// The reason why the checkpoint is not complete, or the part of a state that it holds.
std::string words_of_problem(const RootEntry& entry) {
  if (!entry.part) return one_line(entry.problem);
  const std::string part = "only " + format::words_of(*entry.part);
  return entry.problem.empty() ? part : fmt::format("{}; {}", one_line(entry.problem), part);
}

void print_text(Output& output, const ListOptions& options, const Listing& listing) {
  Columns columns = {">step", "state", ">bytes", ">size", ">files"};
  const bool has_log = !listing.by_step.empty();
  if (has_log) columns.insert(columns.end(), {">age", ">stall", ">GiB/s", "verified"});
  const bool has_metrics =
      std::ranges::any_of(listing.entries, [](const RootEntry& entry) { return !entry.metrics.empty(); });
  if (has_metrics) columns.emplace_back("metrics");
  columns.insert(columns.end(), {"marks", "directory", "problem"});
  Table table(columns);
  std::size_t complete = 0;
  std::size_t parts = 0;
  const auto add = [&](std::vector<std::string> cells, const RootEntry* entry, std::string directory,
                       std::string problem) {
    if (has_log) {
      std::ranges::move(cells_of(entry == nullptr ? format::StepLog() : listing.about(*entry)),
                        std::back_inserter(cells));
    }
    if (has_metrics) cells.push_back(entry == nullptr ? "-" : words_of(entry->metrics));
    cells.push_back(entry == nullptr ? "-" : words_of_marks(listing, *entry));
    cells.push_back(std::move(directory));
    cells.push_back(std::move(problem));
    table.add(cells);
  };
  for (const RootEntry& entry : listing.entries) {
    if (const auto foreign = listing.foreign.find(entry.directory); foreign != listing.foreign.end()) {
      const auto& [dialect, bytes, files] = foreign->second;
      add({std::to_string(entry.step), kForeign, group_digits(bytes), base::format_size(bytes), std::to_string(files)},
          nullptr, base::printable(entry.directory.filename().string()), fmt::format("of {}, no checksums", dialect));
      continue;
    }
    complete += entry.is_complete() && !entry.is_void && !entry.part ? 1 : 0;
    parts += entry.is_complete() && !entry.is_void && entry.part ? 1 : 0;
    add({std::to_string(entry.step), state_of(entry), group_digits(entry.bytes), base::format_size(entry.bytes),
         std::to_string(entry.files)},
        &entry, base::printable(entry.directory.filename().string()), words_of_problem(entry));
  }
  for (const root::Unfinished& unfinished : listing.unfinished) {
    add({"-", "partial", group_digits(unfinished.bytes), base::format_size(unfinished.bytes),
         std::to_string(unfinished.files)},
        nullptr, base::printable(unfinished.directory.filename().string()),
        "not committed: remove it when nothing writes it");
  }
  if (table.rows() != 0) output.line(table.text());
  if (!listing.newest_problem.empty()) output.line("note: " + one_line(listing.newest_problem));
  output.line(fmt::format("{} under '{}', {} complete{}", counted(listing.entries.size(), "checkpoint"),
                          base::printable(options.root.string()), complete,
                          parts == 0 ? "" : fmt::format(", {} of a part", parts)));
  if (const std::string words = words_of_log(listing.log); !words.empty()) output.line(words);
  if (const format::LogCall* const failure = last_failure(listing.log)) output.line(words_of_failure(*failure));
  if (!listing.hint.empty()) output.line("note: " + one_line(listing.hint));
}

base::Json time_json(const std::optional<format::LogCall>& call) {
  return call ? base::Json(format::log_time(call->time_ms)) : base::Json(nullptr);
}

void add_history(base::Json& row, const format::StepLog& about) {
  row["saved"] = time_json(about.saved);
  row["save_seconds_max"] = about.saved ? base::Json(about.saved->seconds) : base::Json(nullptr);
  row["stall_seconds_max"] =
      about.saved && about.saved->is_async ? base::Json(about.saved->stall_seconds) : base::Json(nullptr);
  row["verified"] = time_json(about.verified);
  row["verified_good"] = about.verified ? base::Json(about.verified->is_good()) : base::Json(nullptr);
}

base::Json log_json(const format::RunLog& log) {
  base::Json document = base::Json::object();
  constexpr std::array<std::pair<const char*, const char*>, 5> kKinds = {{{"saves", format::kLogSave},
                                                                          {"loads", format::kLogLoad},
                                                                          {"verifications", format::kLogVerify},
                                                                          {"prunings", format::kLogPrune},
                                                                          {"repairs", format::kLogRepair}}};
  for (const auto& [key, what] : kKinds) {
    const Count calls = count(log, what);
    document[key] = base::Json{{"all", calls.all}, {"good", calls.good}};
  }
  document["last_failure"] = nullptr;
  if (const format::LogCall* const failure = last_failure(log)) {
    document["last_failure"] = base::Json{{"time", format::log_time(failure->time_ms)},
                                          {"what", failure->what},
                                          {"step", failure->step ? base::Json(*failure->step) : base::Json(nullptr)},
                                          {"outcome", failure->outcome},
                                          {"message", failure->error}};
  }
  document["lines_not_read"] = log.damaged + log.newer;
  return document;
}

void print_document(Output& output, const ListOptions& options, const Listing& listing) {
  const std::vector<RootEntry>& entries = listing.entries;
  base::Json document = json_document("ls");
  document["root"] = options.root.string();
  document["newest_complete_step"] = listing.newest ? base::Json(*listing.newest) : base::Json();
  if (!listing.newest_problem.empty()) document["newest_problem"] = listing.newest_problem;
  document["checkpoints"] = base::Json::array_of(entries, [&](const RootEntry& entry) -> base::Json {
    const auto foreign = listing.foreign.find(entry.directory);
    const bool is_foreign = foreign != listing.foreign.end();
    base::Json row = {{"step", entry.step},
                      {"state", is_foreign ? kForeign : state_of(entry)},
                      {"size_bytes", is_foreign ? foreign->second.bytes : entry.bytes},
                      {"files", is_foreign ? foreign->second.files : entry.files},
                      {"directory", entry.directory.string()},
                      {"dialect", is_foreign ? foreign->second.dialect : ""},
                      {"problem", entry.problem},
                      {"part", entry.part ? base::Json(format::words_of(*entry.part)) : base::Json(nullptr)}};
    row["metrics"] = entry.metrics;
    row["pinned"] = !entry.partial && listing.pins.contains(entry.step);
    add_history(row, is_foreign ? format::StepLog() : listing.about(entry));
    return row;
  });
  document["log"] = log_json(listing.log);
  document["hint"] = listing.hint;
  document["unfinished"] = base::Json::array_of(listing.unfinished, [](const root::Unfinished& one) -> base::Json {
    return {{"directory", one.directory.string()},
            {"destination", one.destination.string()},
            {"size_bytes", one.bytes},
            {"files", one.files}};
  });
  print_json(output, document);
}

/// The beginning of each list of --watch: on a terminal at the upper left corner, with nothing below.
void begin_renewal(Output& output, const ListOptions& options) {
  if (output.is_terminal()) output.text("\x1b[H\x1b[2J");
  if (!options.json)
    output.line(fmt::format("{}, every {:g} s", format::log_time(root::unix_time_ms()), *options.watch_seconds));
}

void list(Context& context, const ListOptions& options) {
  comm::agree_on_root(context.communicator, "list", 0, [&] {
    require_directory(options.root, "; give the root of a run's checkpoints");
    Listing listing{root::list_root(options.root), {}, root::list_unfinished(options.root), {}, {}, {}, {}, {}, {}};
    listing.pins = root::read_pins(options.root);
    try {
      listing.newest = root::newest_step(options.root, listing.entries);
    } catch (const Error& error) {
      listing.newest_problem = error.what();
    }
    listing.log = root::read_run_log(options.root);
    listing.by_step = format::log_by_step(listing.log);
    look_at_foreign(options, listing);
    if (listing.entries.empty()) listing.hint = opening::hint_of_folders(options.root);
    if (options.watch_seconds) begin_renewal(context.output, options);
    if (options.json) {
      print_document(context.output, options, listing);
    } else {
      print_text(context.output, options, listing);
    }
    if (options.watch_seconds) context.output.finish();
  });
}

}  // namespace

int run_list(Context& context, const ListOptions& options) {
  if (!options.watch_seconds) {
    list(context, options);
    return kExitGood;
  }
  os::settle_ending(kExitGood);  // Ctrl-C is the way to end this, and no error
  for (;;) {
    list(context, options);
    std::this_thread::sleep_for(std::chrono::duration<double>(*options.watch_seconds));
  }
}

}  // namespace cairn::cli
