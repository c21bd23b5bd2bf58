#include "cli/repair.hpp"

#include <fmt/core.h>

#include <span>

#include "base/text.hpp"
#include "checkpoint/call.hpp"
#include "cli/json_output.hpp"
#include "cli/progress.hpp"
#include "cli/table.hpp"
#include "comm/agree.hpp"

namespace cairn::cli {
namespace {

void print_text(Output& output, const RepairCommand& command, const Repair& repair) {
  const bool is_dry = command.options.dry_run;
  for (const std::string& note : repair.notes) output.note(note);
  for (const RepairAction& action : repair.actions) {
    output.summary((is_dry ? "damaged: " : "repaired: ") + one_line(action.what));
  }
  for (const RepairFault& fault : repair.faults) output.line("fault: " + one_line(fault.message));
  const std::string where =
      fmt::format("{} of '{}'", counted(repair.checkpoints, "checkpoint"), base::printable(command.path.string()));
  const std::string read =
      fmt::format("{} in {} read", base::format_size(repair.bytes), counted(repair.blocks, "block"));
  if (repair.actions.empty() && repair.faults.empty()) {
    return output.summary(fmt::format("good: there is nothing to repair in {}; {}", where, read));
  }
  const std::string done = fmt::format("{} {}; {}", counted(repair.actions.size(), "repair"),
                                       is_dry ? "possible, nothing was changed" : "made", read);
  if (repair.faults.empty()) return output.summary(fmt::format("good: {}; {}", where, done));
  output.line(fmt::format("bad: {} {} in {}; {}", counted(repair.faults.size(), "fault"),
                          repair.faults.size() == 1 ? "stays" : "stay", where, done));
}

base::Json number_or_null(const std::optional<std::uint64_t>& number) {
  return number ? base::Json(*number) : base::Json(nullptr);
}

void print_document(Output& output, const RepairCommand& command, const Repair& repair) {
  base::Json document = json_document("repair");
  document["path"] = command.path.string();
  document["dry_run"] = command.options.dry_run;
  document["good"] = repair.faults.empty();
  document["checkpoints"] = repair.checkpoints;
  document["blocks"] = repair.blocks;
  document["size_bytes"] = repair.bytes;
  document["actions"] = base::Json::array_of(repair.actions, [](const RepairAction& action) -> base::Json {
    return {{"path", action.path.string()},
            {"step", number_or_null(action.step)},
            {"what", action.what},
            {"blocks", action.blocks},
            {"size_bytes", action.bytes}};
  });
  document["faults"] = base::Json::array_of(repair.faults, [](const RepairFault& fault) -> base::Json {
    return {{"path", fault.path.string()},
            {"step", number_or_null(fault.step)},
            {"block", number_or_null(fault.block)},
            {"tensors", fault.tensors},
            {"message", fault.message}};
  });
  document["notes"] = messages_json(repair.notes);
  print_json(output, document);
}

}  // namespace

int run_repair(Context& context, const RepairCommand& command) {
  const checkpoint::Call call(context.communicator);  // its file operations count as progress
  std::uint64_t has_failed[] = {0};
  comm::agree_on_root(context.communicator, "repair", 0, [&] {
    RepairOptions options = command.options;
    options.wait_seconds = command.wait;
    options.from.assign(command.from.begin(), command.from.end());
    Repair repair;
    {
      const ProgressLine progress(context.output);
      repair = cairn::repair(command.path, options);
    }
    has_failed[0] = repair.faults.empty() ? 0 : 1;
    if (command.json) {
      print_document(context.output, command, repair);
    } else {
      print_text(context.output, command, repair);
    }
  });
  context.communicator.broadcast(std::as_writable_bytes(std::span(has_failed)), 0);
  return has_failed[0] == 0 ? kExitGood : kExitFailed;
}

}  // namespace cairn::cli
