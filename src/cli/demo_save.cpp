// The saving half of the demonstration.
#include <fmt/core.h>

#include "base/log.hpp"
#include "base/text.hpp"
#include "bench/shards_of.hpp"
#include "cairn/error.hpp"
#include "checkpoint/call.hpp"
#include "cli/arguments.hpp"
#include "cli/demo.hpp"
#include "cli/demo_layout.hpp"
#include "cli/demo_state.hpp"
#include "cli/exit_code.hpp"
#include "cli/json_output.hpp"
#include "cli/progress.hpp"
#include "cli/table.hpp"
#include "cli/timings.hpp"
#include "comm/agree.hpp"
#include "comm/mpi.hpp"

namespace cairn::cli {
namespace {

constexpr const char* kDefaultModel = "smollm2-135m";

Extras extras_of(const Context& context, const DemoOptions& options, const DemoState& state,
                 const std::string& layout) {
  Extras extras;
  extras.metadata = {{"made_by", "cairn demo save"}, {"model", options.model.empty() ? kDefaultModel : options.model}};
  extras.carry_texts["config.json"] = state.config;
  extras.carry_texts["trainer_state.json"] = fmt::format("{{\n  \"global_step\": {}\n}}\n", options.step);
  extras.rank_blob = demo_blob(context.communicator.rank(), context.communicator.size());
  extras.layout = layout;
  return extras;
}

Report save(Context& context, const DemoOptions& options, std::span<const Source> sources, const Extras& extras) {
  const ProgressLine progress(context.output);
  Options checkpointer_options = options.checkpointer;
  checkpointer_options.waiting.then = OnSilence::kEndProcess;
  checkpointer_options.hints = parse_hints(options.hints);
  checkpointer_options.run_id = "demo";
  Checkpointer checkpointer(comm::native_handle(context.communicator), options.directory, checkpointer_options);
  return checkpointer.save(options.step, sources, extras);
}

void print_document(Output& output, const Report& report, const DemoState& state, const Extras& extras) {
  base::Json document = json_document("demo save");
  document["directory"] = report.directory.string();
  document["layout"] = extras.layout;
  document["tensors"] = state.tensors.size();
  document["files"] = report.files;
  document["size_bytes"] = state.bytes;
  document["engine"] = report.engine;
  document["engine_reason"] = report.engine_reason;
  document["seconds_max"] = report.seconds;
  document["phases"] = phases_json(report.phases);
  print_json(output, document);
}

}  // namespace

int run_demo_save(Context& context, const DemoOptions& options) {
  check_positive(options.checkpointer.max_file_bytes, "--max-file-size");
  const std::string layout = demo_layout(context.communicator, options.layout);
  const std::string model = options.model.empty() ? kDefaultModel : options.model;
  const DemoState state = demo_state(context.communicator, model, options.layers);
  const shard::ShardMap map(shard::Layout::from_text(layout), state.model, state.sections, state.tensors);
  checkpoint::PhaseClock clock;
  std::optional<HeldState> held;
  comm::agree(context.communicator, "make the state", [&] {
    clock.begin("generate");
    held.emplace(state, map, context.communicator.rank());
    held->fill();
    clock.add_bytes(held->bytes());
    clock.stop();
  });
  std::vector<Phase> phases = clock.reduce(context.communicator);
  const Extras extras = extras_of(context, options, state, layout);
  Report report = save(context, options, bench::shards_of<Source>(state, *held), extras);
  phases.insert(phases.end(), report.phases.begin(), report.phases.end());
  report.phases = std::move(phases);
  if (options.json) {
    print_document(context.output, report, state, extras);
    return kExitGood;
  }
  for (const std::string& note : map.notes()) context.output.line("note: " + one_line(note));
  for (const std::string& warning : report.warnings) base::warn_once(warning);
  context.output.line("engine " + report.engine + ": " + base::printable(report.engine_reason, 1000));
  context.output.line(phase_table(report.phases, report.seconds, state.bytes));
  context.output.line(
      fmt::format("saved {}, {} ({}), from {} in layout {} into {} of {}", counted(state.tensors.size(), "tensor"),
                  counted(state.bytes, "byte"), base::format_size(state.bytes),
                  counted(static_cast<std::uint64_t>(context.communicator.size()), "rank"), base::printable(layout),
                  counted(report.files, "file"), base::printable(report.directory.string())));
  return kExitGood;
}

}  // namespace cairn::cli
