// The loading half of the demonstration: every byte of every box against the function that made it.
#include <fmt/core.h>

#include "base/log.hpp"
#include "base/text.hpp"
#include "bench/demo_state.hpp"
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

using bench::Verdict;

DemoState state_to_load(Context& context, const DemoOptions& options, const Checkpointer::LoadedExtras& extras) {
  if (!options.model.empty()) return demo_state(context.communicator, options.model, options.layers);
  const auto config = extras.carried.find("config.json");
  if (config == extras.carried.end()) {
    throw Error(ErrorKind::kUsage, "the checkpoint carries no config.json; name the model with --model");
  }
  return demo_state_of_config(config->second, options.layers);
}

void check_blobs(const Checkpointer::LoadedExtras& extras) {
  const int saved = static_cast<int>(extras.rank_blobs.size());
  for (int rank = 0; rank < saved; ++rank) {
    if (extras.rank_blobs[static_cast<std::size_t>(rank)] == demo_blob(rank, saved)) continue;
    throw Error(ErrorKind::kIntegrity,
                fmt::format("blob of saving rank {} of {} is not what the demonstration saved", rank, saved));
  }
}

void print_document(Output& output, const Report& report, const Verdict& verdict, const DemoState& state) {
  base::Json document = json_document("demo load");
  document["directory"] = report.directory.string();
  document["equal"] = !verdict.first;
  document["tensors"] = verdict.tensors;
  document["size_bytes_compared"] = verdict.bytes;
  document["first_difference"] = nullptr;
  if (verdict.first) {
    document["first_difference"] = {{"section", state.sections[verdict.first->tensor]},
                                    {"tensor", state.tensors[verdict.first->tensor].name},
                                    {"element", verdict.first->element}};
  }
  document["engine"] = report.engine;
  document["engine_reason"] = report.engine_reason;
  document["seconds_max"] = report.seconds;
  document["phases"] = phases_json(report.phases);
  print_json(output, document);
}

void print_text(Context& context, const Report& report, const Verdict& verdict, const std::string& layout) {
  for (const std::string& warning : report.warnings) base::warn_once(warning);
  context.output.line("engine " + report.engine + ": " + base::printable(report.engine_reason, 1000));
  context.output.line(phase_table(report.phases, report.seconds, report.bytes));
  context.output.line(fmt::format("loaded {} on {} in layout {}", base::printable(report.directory.string()),
                                  counted(static_cast<std::uint64_t>(context.communicator.size()), "rank"),
                                  base::printable(layout)));
  if (verdict.first) return;
  context.output.line(
      fmt::format("{}, {} equal bit for bit", counted(verdict.tensors, "tensor"), counted(verdict.bytes, "byte")));
}

std::uint64_t newest_step(Checkpointer& checkpointer, const std::filesystem::path& root) {
  const auto step = checkpointer.latest();
  if (step) return *step;
  throw Error(ErrorKind::kNotFound, fmt::format("no complete checkpoint under '{}'; make one with cairn demo save",
                                                base::printable(root.string())));
}

// The root must exist: to load is not to create it.
void check_root(Context& context, const std::filesystem::path& root) {
  comm::agree_on_root(context.communicator, "find checkpoint", 0, [&] {
    if (std::filesystem::is_directory(root)) return;
    throw Error(ErrorKind::kNotFound, fmt::format("'{}' is no directory; make a checkpoint with cairn demo save",
                                                  base::printable(root.string())));
  });
}

}  // namespace

int run_demo_load(Context& context, const DemoOptions& options) {
  const std::string layout = demo_layout(context.communicator, options.layout);
  check_root(context, options.directory);
  Options checkpointer_options = options.checkpointer;
  checkpointer_options.waiting.then = OnSilence::kEndProcess;
  checkpointer_options.hints = parse_hints(options.hints);
  Checkpointer checkpointer(comm::native_handle(context.communicator), options.directory, checkpointer_options);
  const std::uint64_t step = newest_step(checkpointer, options.directory);
  const Checkpointer::LoadedExtras extras = checkpointer.load_extras(step);
  const DemoState state = state_to_load(context, options, extras);
  const shard::ShardMap map(shard::Layout::from_text(layout), state.model, state.sections, state.tensors);
  std::optional<HeldState> held;
  comm::agree(context.communicator, "reserve memory", [&] {
    held.emplace(state, map, context.communicator.rank());
    held->overwrite();
  });
  Report report;
  {
    const ProgressLine progress(context.output);
    report = checkpointer.load(step, bench::shards_of<Target>(state, *held));
  }
  checkpoint::PhaseClock clock;
  clock.begin("compare");
  const HeldState::Comparison comparison = held->compare();
  clock.add_bytes(comparison.bytes);
  clock.stop();
  for (Phase& phase : clock.reduce(context.communicator)) report.phases.push_back(std::move(phase));
  const Verdict verdict = reduce(context.communicator, comparison, state.tensors.size());
  check_completeness(verdict, state);
  check_blobs(extras);
  if (options.json) {
    print_document(context.output, report, verdict, state);
  } else {
    for (const std::string& note : map.notes()) context.output.line("note: " + one_line(note));
    print_text(context, report, verdict, layout);
  }
  if (!verdict.first) return kExitGood;
  context.output.error(describe(*verdict.first, state));
  return kExitFailed;
}

}  // namespace cairn::cli
