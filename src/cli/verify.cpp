// Runs a verification and prints its result.
#include "cli/verify.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.hpp"
#include "base/digits.hpp"
#include "base/log.hpp"
#include "base/text.hpp"
#include "cairn/error.hpp"
#include "checkpoint/newest.hpp"
#include "checkpoint/root_log.hpp"
#include "checkpoint/verify.hpp"
#include "cli/arguments.hpp"
#include "cli/json_output.hpp"
#include "cli/list.hpp"
#include "cli/option_words.hpp"
#include "cli/progress.hpp"
#include "cli/table.hpp"
#include "comm/agree.hpp"
#include "format/run_log.hpp"
#include "opening/parts.hpp"
#include "os/errno_class.hpp"
#include "root/root.hpp"
#include "root/run_log.hpp"

namespace cairn::cli {
namespace {

checkpoint::VerifyResult verify_with_progress(Context& context, const std::filesystem::path& path,
                                              const opening::Allowed& allowed) {
  const ProgressLine progress(context.output);
  return checkpoint::verify_and_log(context.communicator, path, allowed);
}

/// A note about bytes that may have come from the page cache, or "".
std::string note_of(const checkpoint::VerifyResult& result) {
  if (result.cached_bytes == 0) return "";
  return fmt::format("{} may have come from the page cache and not from storage: {}",
                     base::format_size(result.cached_bytes), base::printable(result.why_cached, 1000));
}

/// "; 2 files checked against the SHA-256 in their names, 1 against git's SHA-1", or "" if no file was.
std::string named_words(const checkpoint::VerifyResult& result) {
  std::string words;
  const auto their_names = [](std::uint64_t files) { return files == 1 ? "its name" : "their names"; };
  if (result.sha256_files != 0) {
    words = fmt::format("{} checked against the SHA-256 in {}", counted(result.sha256_files, "file"),
                        their_names(result.sha256_files));
  }
  if (result.git_files != 0) {
    words += fmt::format("{}{} checked against git's SHA-1 in {}", words.empty() ? "" : ", ",
                         counted(result.git_files, "file"), their_names(result.git_files));
  }
  return words.empty() ? words : "; " + words;
}

void print_text(Output& output, const ResolvedPath& target, const checkpoint::VerifyResult& result) {
  const std::string path = base::printable(target.path.string());
  for (const checkpoint::Fault& fault : result.faults) output.line("fault: " + one_line(fault.message));
  if (!result.faults.empty()) {
    output.line(fmt::format("bad: {} in {}", counted(result.faults.size(), "fault"), path));
  } else if (!result.has_checksums) {
    const char* nothing = result.sha256_files == 0 ? ", so there is nothing to verify the bytes against" : "";
    output.summary(fmt::format("structure good: {} in {} of {}; it has no checksums of Cairn's{}{}",
                               counted(result.tensors, "tensor"), counted(result.files, "file"), path, nothing,
                               named_words(result)));
  } else {
    output.summary(fmt::format("good: {} in {} of {}, {} in {} {}checked in {:.2f} s ({} GiB/s)",
                               counted(result.tensors, "tensor"), counted(result.files, "file"), path,
                               base::format_size(result.bytes), counted(result.blocks, "block"),
                               result.cached_bytes == 0 ? "read past the page cache and " : "", result.seconds,
                               throughput(result.bytes, result.seconds)));
  }
}

void add_result(base::Json& document, const checkpoint::VerifyResult& result, std::vector<std::string> notes) {
  document["good"] = result.faults.empty();
  document["has_checksums"] = result.has_checksums;
  document["files"] = result.files;
  document["tensors"] = result.tensors;
  document["size_bytes"] = result.bytes;
  document["blocks"] = result.blocks;
  document["sha256_files"] = result.sha256_files;
  document["git_files"] = result.git_files;
  document["named_size_bytes"] = result.named_bytes;
  document["past_page_cache"] = result.has_checksums && result.cached_bytes == 0;
  document["seconds_max"] = result.seconds;
  document["faults"] = base::Json::array_of(result.faults, [](const checkpoint::Fault& fault) {
    base::Json row = {{"file", fault.file}, {"tensors", fault.tensors}};
    row["block"] = fault.has_block ? base::Json(fault.block) : base::Json(nullptr);
    row["message"] = in_words_of_command(fault.message);
    return row;
  });
  notes.insert(notes.end(), result.warnings.begin(), result.warnings.end());
  if (const std::string note = note_of(result); !note.empty()) notes.push_back(note);
  document["notes"] = messages_json(notes);
  document["phases"] = phases_json(result.phases);
}

void print_document(Output& output, const ResolvedPath& target, const checkpoint::VerifyResult& result) {
  base::Json document = json_document("verify");
  document["path"] = target.path.string();
  add_result(document, result, target.notes);
  print_json(output, document);
}

/// A checkpoint of a root, and the result of its verification.
struct Row {
  std::uint64_t step = 0;
  std::string state;  ///< as in `cairn ls`, or "gone"
  std::filesystem::path directory;
  bool may_be_foreign = false;
  std::string problem;                                  ///< the reason why the checkpoint is incomplete or gone
  std::optional<checkpoint::VerifyResult> result = {};  ///< empty: not checked
  std::uint64_t verified_ms = 0;                        ///< Unix time, by the root's log; 0: not known
  checkpoint::VerifyPart part = {};                     ///< where an earlier call ended in it

  [[nodiscard]] bool is_foreign() const { return state == kForeign; }
  /// Whether the verification ended before all was checked.
  [[nodiscard]] bool is_in_part() const { return result && result->position_bytes; }
};

bool is_bad(const Row& row) { return row.result && !row.result->faults.empty(); }

struct Rows {
  std::vector<Row> rows;
  std::vector<std::uint64_t> order;  ///< steps, in the order in which a resuming run tries them
};

/// The time of the last verification of each step, and where a later one ended early, from the root's log.
void put_history(base::ByteWriter& out, const format::StepLog& about) {
  out.u64(about.verified ? static_cast<std::uint64_t>(about.verified->time_ms) : 0);
  const auto manifest = about.scrubbed ? base::number_in<std::uint32_t>(about.scrubbed->manifest, 16) : std::nullopt;
  out.u64(manifest ? about.scrubbed->position_bytes : 0);
  out.u64(manifest.value_or(0));
}

/// Collective. Throws kNotFound if the path is not a root of checkpoints. `option` asked for one.
Rows rows_of(comm::Communicator& communicator, const std::filesystem::path& root, const char* option) {
  base::Bytes bytes;
  comm::agree_on_root(communicator, "list the checkpoints", 0, [&] {
    require_directory(root, fmt::format("; {} takes the root of a run's checkpoints", option));
    auto entries = root::list_root(root);
    if (entries.empty()) {
      const std::string hint = opening::hint_of_folders(root);
      throw Error(ErrorKind::kNotFound,
                  fmt::format("'{}' has no checkpoint-<step>; {} takes the root of a run's checkpoints{}{}",
                              base::printable(root.string()), option, hint.empty() ? "" : "; ", hint));
    }
    const auto order = root::resume_order(root, entries);
    std::ranges::stable_sort(entries, {}, &root::RootEntry::step);  // partial entries stay after their checkpoint
    auto history = format::log_by_step(root::read_run_log(root));
    base::ByteWriter out;
    out.u64(entries.size());
    for (const root::RootEntry& entry : entries) {
      out.u64(entry.step);
      out.text(state_of(entry));
      out.text(entry.directory.native());
      out.text(entry.is_complete() ? "" : entry.problem);
      out.u64(opening::may_be_foreign(entry) ? 1 : 0);
      put_history(out, history[entry.step]);
    }
    for (const root::RootEntry& entry : order) out.u64(entry.step);
    bytes = out.take();
  });
  communicator.share(bytes, 0);
  Rows all;
  comm::agree(communicator, "list the checkpoints", [&] {
    base::ByteReader in(bytes);
    for (std::uint64_t left = in.u64(); left > 0; --left) {
      Row& row = all.rows.emplace_back();
      row.step = in.u64();
      row.state = in.text();
      row.directory = in.text();
      row.problem = in.text();
      row.may_be_foreign = in.u64() != 0;
      row.verified_ms = in.u64();
      row.part.begin_bytes = in.u64();
      row.part.manifest_crc32c = static_cast<std::uint32_t>(in.u64());
    }
    while (!in.done()) all.order.push_back(in.u64());
  });
  return all;
}

void add_fault(checkpoint::VerifyResult& result, const std::string& message) {
  result.faults.emplace_back().message = message;
}

/// Whether the system refused to read a file of the checkpoint (wrong permissions, a lost server). False for a shortage
/// in the process or the machine, which affects all checkpoints.
bool is_of_reading(const Error& error, const std::filesystem::path& directory) {
  return error.kind() == ErrorKind::kIo && checkpoint::is_inside(error.path(), directory) && !os::is_shortage(error);
}

/// Collective. `part`: row.part, or all. An error of one checkpoint does not end the verification of the others.
void verify_row(Context& context, Row& row, const opening::Allowed& allowed, const checkpoint::VerifyPart& part) {
  const ProgressLine progress(context.output, row.step);
  try {
    row.result = checkpoint::verify_and_log(context.communicator, row.directory, allowed, part);
  } catch (const comm::AgreedError& error) {
    if (!checkpoint::is_of_checkpoint(error, row.directory) && !is_of_reading(error, row.directory)) throw;
    if (error.kind() == ErrorKind::kNotFound && row.problem.empty()) {  // the checkpoint was complete when the root was
                                                                        // listed
      row.state = "gone";
      row.problem = "removed meanwhile";
      return;
    }
    add_fault(row.result.emplace(), error.what());
  }
  if (row.may_be_foreign && !row.result->dialect.empty()) {
    row.state = kForeign;
  } else if (!row.problem.empty() && row.result->faults.empty()) {
    add_fault(*row.result, row.problem);  // e.g. no cairn.json
  }
}

/// The words of --require other than sections.
constexpr const char* kStep = "step";

constexpr std::array<std::string_view, 5> kWords = {"model", "optimizer", "master_weights", "adapter", kStep};

/// Throws Error(kUsage) for a word that --require does not know.
void check_required(std::span<const std::string> words) {
  for (const std::string& word : words) {
    if (std::ranges::find(kWords, word) != kWords.end()) continue;
    throw Error(ErrorKind::kUsage, fmt::format("--require '{}' is unknown; give {}, with commas between them",
                                               base::printable(word), base::joined(kWords)));
  }
}

/// Adds a fault for each word of --require that the checkpoint lacks. Nothing is known of one that cannot be opened.
void add_lacking(std::span<const std::string> words, const std::filesystem::path& path,
                 checkpoint::VerifyResult& result) {
  if (result.dialect.empty()) return;
  const std::string shown = base::printable(path.string());
  for (const std::string& word : words) {
    if (word == kStep) {
      if (!result.step) add_fault(result, fmt::format("'{}' does not say its step, which --require asks for", shown));
      continue;
    }
    if (std::ranges::find(result.sections, word) != result.sections.end()) continue;
    add_fault(result,
              fmt::format("'{}' has no section {}, which --require asks for; it has {}", shown, word,
                          result.sections.empty() ? "no tensors" : base::printable(base::joined(result.sections))));
  }
}

std::string text_of(const Row& row) {
  if (!row.result) return "not checked: " + one_line(row.problem);
  const checkpoint::VerifyResult& result = *row.result;
  if (result.faults.empty() && row.is_in_part()) {
    return fmt::format("good so far: {} in {}, up to {} of the data", base::format_size(result.bytes),
                       counted(result.blocks, "block"), base::format_size(*result.position_bytes));
  }
  if (result.faults.empty() && row.is_foreign()) {
    return fmt::format("structure good: of {}, no checksums of Cairn's{}", result.dialect, named_words(result));
  }
  if (result.faults.empty()) {
    return fmt::format("good: {} in {} of {}, {:.2f} s ({} GiB/s)", base::format_size(result.bytes),
                       counted(result.blocks, "block"), counted(result.files, "file"), result.seconds,
                       throughput(result.bytes, result.seconds));
  }
  const std::string more =
      result.faults.size() == 1 ? "" : fmt::format("{}, the first: ", counted(result.faults.size(), "fault"));
  return fmt::format("bad: {}{}", more, one_line(result.faults.front().message));
}

/// Sums over all checkpoints.
struct Sum {
  std::uint64_t checked = 0;  ///< whole
  std::uint64_t bad = 0;
  std::uint64_t foreign = 0;
  std::uint64_t bytes = 0;
  std::uint64_t blocks = 0;
  double seconds = 0;
  std::optional<std::uint64_t> newest_good;  ///< the step that load_latest would load
};

Sum sum_of(const Rows& all) {
  Sum sum;
  for (const Row& row : all.rows) {
    if (!row.result) continue;
    sum.checked += row.is_in_part() ? 0 : 1;
    sum.bad += is_bad(row) ? 1 : 0;
    sum.foreign += row.is_foreign() ? 1 : 0;
    sum.bytes += row.result->bytes;
    sum.blocks += row.result->blocks;
    sum.seconds += row.result->seconds;
  }
  const auto is_good = [&](std::uint64_t step) {
    return std::ranges::any_of(all.rows, [&](const Row& row) {
      return row.step == step && !row.is_foreign() && row.result && row.result->faults.empty();
    });
  };
  if (const auto good = std::ranges::find_if(all.order, is_good); good != all.order.end()) sum.newest_good = *good;
  return sum;
}

void print_sum(Output& output, const std::filesystem::path& root, const Sum& sum) {
  const std::string under = fmt::format("under '{}'", base::printable(root.string()));
  const std::string newest = sum.newest_good ? fmt::format("the newest good one is step {}", *sum.newest_good)
                                             : "there is no good one to resume from";
  if (sum.bad != 0)
    return output.line(fmt::format("bad: {} of {} {}; {}", sum.bad, counted(sum.checked, "checkpoint"), under, newest));
  if (sum.foreign != 0 && sum.foreign == sum.checked) {
    return output.summary(fmt::format("structure good: {} {}, without checksums of Cairn's; {}",
                                      counted(sum.foreign, "foreign checkpoint"), under, newest));
  }
  const std::string foreign = sum.foreign == 0 ? ""
                                               : fmt::format("; of {} only the structure was checked",
                                                             counted(sum.foreign, "foreign checkpoint"));
  output.summary(fmt::format("good: {} {}, {} in {} checked in {:.2f} s{}; {}", counted(sum.checked, "checkpoint"),
                             under, base::format_size(sum.bytes), counted(sum.blocks, "block"), sum.seconds, foreign,
                             newest));
}

/// `next`: of --for; the checkpoint with which the next call begins, if time was too short for all.
void print_document(Output& output, const std::filesystem::path& root, const Rows& all, const Sum& sum,
                    const Row* next) {
  base::Json document = json_document("verify");
  document["path"] = root.string();
  document["good"] = sum.bad == 0;
  document["newest_good_step"] = sum.newest_good ? base::Json(*sum.newest_good) : base::Json(nullptr);
  document["next_step"] = next != nullptr ? base::Json(next->step) : base::Json(nullptr);
  document["size_bytes"] = sum.bytes;
  document["blocks"] = sum.blocks;
  document["seconds_max"] = sum.seconds;
  document["checkpoints"] = base::Json::array_of(all.rows, [](const Row& row) {
    base::Json entry = {{"step", row.step}, {"state", row.state}, {"directory", row.directory.string()}};
    entry["problem"] = row.problem;
    entry["good"] = nullptr;
    if (row.result) add_result(entry, *row.result, {});
    if (row.is_in_part()) entry["position_bytes"] = *row.result->position_bytes;
    return entry;
  });
  print_json(output, document);
}

/// Collective: verifies the row and, without --json, prints a line.
void verify_and_print(Context& context, Row& row, const VerifyOptions& options, std::size_t width,
                      const checkpoint::VerifyPart& part) {
  if (row.state != "partial") verify_row(context, row, opening::allowed_by(options), part);
  if (row.result) add_lacking(options.require, row.directory, *row.result);
  if (options.json) return;
  if (row.result) {
    for (const std::string& warning : row.result->warnings) base::warn_once(warning);
    if (const std::string note = note_of(*row.result); !note.empty() && !context.output.is_quiet())
      base::warn_once(note);
  }
  const std::string line = fmt::format("step {:>{}}  {:<10}  {}", row.step, width, row.state, text_of(row));
  if (is_bad(row)) {
    context.output.line(line);
  } else {
    context.output.summary(line);
  }
  context.output.flush();
}

std::size_t width_of_steps(const Rows& all) { return std::to_string(all.rows.back().step).size() + 1; }

/// Rank-local, on rank 0: warns if the next call will not know what this one has verified.
void warn_if_forgotten(const std::filesystem::path& root, std::span<const Row> rows, std::int64_t began_ms) {
  const auto history = format::log_by_step(root::read_run_log(root));
  for (const Row& row : rows) {
    if (!row.result) continue;
    const auto about = history.find(row.step);
    const auto is_noted = [&](const std::optional<format::LogCall>& call) { return call && call->time_ms >= began_ms; };
    if (about != history.end() && (is_noted(about->second.verified) || is_noted(about->second.scrubbed))) continue;
    return base::warn_once(
        fmt::format("{} of '{}' cannot be written, so the next call begins with the same checkpoints",
                    format::kRunLogFile, base::printable(root.string())));
  }
}

/// "step 1500, verified 2026-11-27T20:15:55.123Z".
std::string words_of_next(const Row& row) {
  if (row.is_in_part()) return fmt::format("step {}, of which a part is verified", row.step);
  return fmt::format("step {}, {}", row.step,
                     row.verified_ms == 0 ? "not verified yet"
                                          : "verified " + format::log_time(static_cast<std::int64_t>(row.verified_ms)));
}

/// The checkpoints of a root for a limited time, those first that were verified longest ago. The root's log remembers.
int scrub(Context& context, const VerifyOptions& options) {
  using Clock = std::chrono::steady_clock;
  const auto until =
      Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(*options.limit_seconds));
  const std::int64_t began_ms = root::unix_time_ms();
  Rows all = rows_of(context.communicator, options.path, "--for");
  const std::size_t width = width_of_steps(all);
  std::erase_if(all.rows, [](const Row& row) { return row.state == "partial"; });
  std::ranges::stable_sort(all.rows, {}, &Row::verified_ms);
  const auto has_time = [&] { return Clock::now() < until; };
  std::size_t reached = 0;
  while (reached < all.rows.size()) {
    std::uint64_t answer[] = {0};
    comm::agree_on_root(context.communicator, "verify", 0, [&] { answer[0] = reached == 0 || has_time() ? 1 : 0; });
    context.communicator.broadcast(std::as_writable_bytes(std::span(answer)), 0);
    if (answer[0] == 0) break;
    Row& row = all.rows[reached];
    checkpoint::VerifyPart part = row.part;
    part.may_go_on = has_time;
    verify_and_print(context, row, options, width, part);
    if (row.is_in_part() && !is_bad(row)) break;
    ++reached;
  }
  Sum sum = sum_of(all);
  sum.newest_good.reset();  // the newest one may not have been looked at
  const Row* const next = reached < all.rows.size() ? &all.rows[reached] : nullptr;
  comm::agree_on_root(context.communicator, "verify", 0, [&] {
    warn_if_forgotten(options.path, all.rows, began_ms);
    if (options.json) return print_document(context.output, options.path, all, sum, next);
    const std::string line =
        fmt::format("{}{} of {} under '{}', {} in {} checked in {:.2f} s; {}",
                    sum.bad == 0 ? "good: " : fmt::format("bad: {} bad among ", sum.bad), sum.checked,
                    counted(all.rows.size(), "checkpoint"), base::printable(options.path.string()),
                    base::format_size(sum.bytes), counted(sum.blocks, "block"), sum.seconds,
                    next != nullptr ? "the next is " + words_of_next(*next) : "all of them were in time");
    if (sum.bad == 0) return context.output.summary(line);
    context.output.line(line);
  });
  return sum.bad == 0 ? kExitGood : kExitFailed;
}

int verify_all(Context& context, const VerifyOptions& options) {
  Rows all = rows_of(context.communicator, options.path, "--all");
  const std::size_t width = width_of_steps(all);
  for (Row& row : all.rows) verify_and_print(context, row, options, width, {});
  const Sum sum = sum_of(all);
  if (options.json) {
    print_document(context.output, options.path, all, sum, nullptr);
  } else {
    print_sum(context.output, options.path, sum);
  }
  return sum.bad == 0 ? kExitGood : kExitFailed;
}

}  // namespace

std::vector<std::string> required_words() { return {kWords.begin(), kWords.end()}; }

int run_verify(Context& context, const VerifyOptions& options) {
  check_required(options.require);
  if (options.limit_seconds) return scrub(context, options);
  if (options.all) return verify_all(context, options);
  const ResolvedPath target = resolve(context.communicator, options.path);
  comm::agree_on_root(context.communicator, "look for an index", 0, [&] {
    if (options.trust_index) refuse_idle_trust({&target});
  });
  checkpoint::VerifyResult result = verify_with_progress(context, target.path, opening::allowed_by(options));
  for (const std::string& lost : target.lost) add_fault(result, lost);
  add_lacking(options.require, target.path, result);
  if (options.json) {
    print_document(context.output, target, result);
  } else {
    for (const std::string& note : target.notes) context.output.note(note);
    for (const std::string& warning : result.warnings) base::warn_once(warning);
    if (const std::string note = note_of(result); !note.empty()) context.output.note(note);
    print_text(context.output, target, result);
  }
  return result.faults.empty() ? kExitGood : kExitFailed;
}

}  // namespace cairn::cli
