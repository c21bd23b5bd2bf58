#include "cli/prune.hpp"

#include <fmt/core.h>

#include <span>

#include "base/digits.hpp"
#include "base/text.hpp"
#include "cairn/error.hpp"
#include "cli/json_output.hpp"
#include "cli/table.hpp"
#include "comm/agree.hpp"

namespace cairn::cli {
namespace {

const char* fate_in_words(const StepFate& fate, bool dry_run) {
  if (!fate.goes) return "stays";
  return dry_run ? "would go" : "gone";
}

void print_text(Output& output, const PruneCommand& command, const Pruning& pruning) {
  Table table({">step", "fate", ">size", "directory", "why"});
  std::size_t gone = 0;
  std::uint64_t bytes = 0;
  for (const StepFate& fate : pruning.steps) {
    gone += fate.goes ? 1 : 0;
    bytes += fate.goes ? fate.bytes : 0;
    table.add({std::to_string(fate.step), fate_in_words(fate, command.options.dry_run), base::format_size(fate.bytes),
               base::printable(fate.directory.filename().string()), one_line(fate.why)});
  }
  if (table.rows() != 0) output.summary(table.text());
  const std::string of = fmt::format("{} of {} under '{}'", gone, counted(pruning.steps.size(), "checkpoint"),
                                     base::printable(command.root.string()));
  output.summary(command.options.dry_run
                     ? fmt::format("{} would go, with {} of data; nothing was changed", of, base::format_size(bytes))
                     : fmt::format("{} went, {} freed", of, base::format_size(pruning.freed_bytes)));
}

void print_document(Output& output, const PruneCommand& command, const Pruning& pruning) {
  base::Json document = json_document("prune");
  document["root"] = command.root.string();
  document["dry_run"] = command.options.dry_run;
  document["freed_size_bytes"] = pruning.freed_bytes;
  document["checkpoints"] = base::Json::array_of(pruning.steps, [](const StepFate& fate) -> base::Json {
    return {{"step", fate.step},
            {"directory", fate.directory.string()},
            {"goes", fate.goes},
            {"why", fate.why},
            {"size_bytes", fate.bytes}};
  });
  document["warnings"] = messages_json(pruning.warnings);
  print_json(output, document);
}

}  // namespace

std::uint64_t number_in(const std::string& text) {
  if (const auto number = base::number_in<std::uint64_t>(text)) return *number;
  throw Error(ErrorKind::kUsage, fmt::format("'{}' is not a whole number from 0 on", base::printable(text)));
}

BestBy best_in(const std::string& text) {
  const auto refuse = [&](const char* why) {
    return Error(ErrorKind::kUsage, fmt::format("'{}' {}; write it like loss:min:2", base::printable(text), why));
  };
  // From the end: the name of a metric may have a colon.
  BestBy rule{text, Best::kMin, 1};
  const auto take_last = [&]() -> std::string {
    const std::size_t colon = rule.metric.rfind(':');
    if (colon == std::string::npos) return {};
    std::string word = rule.metric.substr(colon + 1);
    rule.metric.resize(colon);
    return word;
  };
  std::string word = take_last();
  if (const auto keep = base::number_in<std::uint64_t>(word)) {
    rule.keep = *keep;
    if (rule.keep == 0) throw refuse("keeps 0 checkpoints");
    word = take_last();
  }
  if (word != "min" && word != "max")
    throw refuse("does not say whether the smallest (min) or largest (max) is the best");
  rule.best = word == "min" ? Best::kMin : Best::kMax;
  if (rule.metric.empty()) throw refuse("names no metric");
  return rule;
}

int run_prune(Context& context, const PruneCommand& command) {
  std::uint64_t has_failed[] = {0};
  comm::agree_on_root(context.communicator, "prune", 0, [&] {
    PruneOptions options = command.options;
    options.wait_seconds = command.wait;
    const Pruning pruning = cairn::prune(command.root, command.retention, options);
    has_failed[0] = pruning.warnings.empty() ? 0 : 1;
    if (command.json) {
      print_document(context.output, command, pruning);
    } else {
      print_text(context.output, command, pruning);
    }
  });
  context.communicator.broadcast(std::as_writable_bytes(std::span(has_failed)), 0);
  return has_failed[0] == 0 ? kExitGood : kExitFailed;
}

int run_pin(Context& context, const PinCommand& command) {
  comm::agree_on_root(context.communicator, command.is_to_unpin ? "unpin" : "pin", 0, [&] {
    if (command.is_to_unpin) {
      unpin(command.root, command.step);
    } else {
      pin(command.root, command.step);
    }
    context.output.summary(fmt::format("step {} of '{}' is {}", command.step, base::printable(command.root.string()),
                                       command.is_to_unpin ? "no longer pinned" : "pinned: no pruning removes it"));
  });
  return kExitGood;
}

}  // namespace cairn::cli
