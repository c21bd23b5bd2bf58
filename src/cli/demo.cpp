// The demonstration: its common part, the half that saves and the half that loads.
#include "cli/demo.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cstddef>
#include <span>

#include "base/bytes.hpp"
#include "base/digits.hpp"
#include "base/log.hpp"
#include "base/text.hpp"
#include "bench/demo_state.hpp"
#include "bench/machine.hpp"
#include "bench/shards_of.hpp"
#include "cairn/error.hpp"
#include "checkpoint/call.hpp"
#include "checkpoint/newest.hpp"
#include "cli/arguments.hpp"
#include "cli/json_output.hpp"
#include "cli/progress.hpp"
#include "cli/table.hpp"
#include "comm/agree.hpp"
#include "comm/communicator.hpp"
#include "comm/mpi.hpp"
#include "format/manifest.hpp"
#include "format/safetensors.hpp"
#include "shard/layout.hpp"
#include "shard/name_pattern.hpp"

namespace cairn::cli {
namespace {

/// Collective. The layout text that an argument gives; an empty one stands for tp=2,pp=2 on four ranks, otherwise for
/// fsdp=N. Throws Error(kUsage) if the layout is not for the communicator's number of ranks.
std::string demo_layout(comm::Communicator& communicator, const std::string& argument) {
  const int ranks = communicator.size();
  if (argument.empty()) return ranks == 4 ? "tp=2,pp=2" : fmt::format("fsdp={}", ranks);
  std::string text = layout_text(communicator, argument);
  const int needed = shard::Layout::from_text(text).world_size();
  if (needed != ranks) {
    throw Error(ErrorKind::kUsage, fmt::format("layout {} is for {} ranks, but {} run; start cairn with mpirun -n {}",
                                               base::printable(text), needed, ranks, needed));
  }
  return text;
}

/// The blob that rank `rank` of `size` ranks saves.
std::vector<std::byte> demo_blob(int rank, int size) {
  const std::string text = fmt::format("random state of rank {} of {}", rank, size);
  const auto bytes = base::as_bytes(text);
  return {bytes.begin(), bytes.end()};
}

/// Collective. Refuses a state that does not fit into the memory of the hosts.
void check_memory(Context& context, const DemoOptions& options, const bench::DemoState& state,
                  const shard::ShardMap& map) {
  std::uint64_t mine = options.checkpointer.limits.memory_budget_bytes;
  comm::agree(context.communicator, "plan the layout", [&] {
    for (const shard::HeldTensor& held : map.held_by(context.communicator.rank())) mine += bench::bytes_of(state, held);
  });
  bench::check_memory(context.communicator, bench::describe_hosts(context.communicator), mine,
                      fmt::format("the state of {} with --memory for each rank", base::format_size(state.bytes)),
                      "take fewer --layers, another --model, or more hosts");
}

// The half that saves.

constexpr const char* kDefaultModel = "smollm2-135m";

Extras extras_of(const Context& context, const DemoOptions& options, const bench::DemoState& state,
                 const std::string& layout) {
  Extras extras;
  extras.metadata = {{"made_by", "cairn demo save"}, {"model", options.model.empty() ? kDefaultModel : options.model}};
  extras.carry_texts["config.json"] = state.config;
  extras.carry_texts["trainer_state.json"] = fmt::format("{{\n  \"global_step\": {}\n}}\n", options.step);
  extras.rank_blob = demo_blob(context.communicator.rank(), context.communicator.size());
  extras.layout = layout;
  return extras;
}

/// The tensors of the state that are saved.
struct Saved {
  std::uint64_t tensors = 0;
  std::uint64_t bytes = 0;
};

Saved saved_of(const bench::DemoState& state, const DemoOptions& options) {
  const shard::Selector selector(options.select);
  Saved saved;
  for (std::size_t i = 0; i < state.tensors.size(); ++i) {
    if (!selector.selects(state.sections[i], state.tensors[i].name)) continue;
    if (options.checkpointer.no_save_optim && state.sections[i] == format::kOptimizerSection) continue;
    ++saved.tensors;
    saved.bytes += format::tensor_bytes(state.tensors[i].dtype, state.tensors[i].shape, state.tensors[i].name);
  }
  return saved;
}

void choose_content(const DemoOptions& options, Options& checkpointer) {
  if (!options.reuse.empty()) {
    checkpointer.frozen = {{options.frozen, {}}};
    checkpointer.reuse = options.reuse == "reflink" ? Reuse::kReflink : Reuse::kHardLink;
  }
  const Selection& select = options.select;
  if (!select.sections.empty() || !select.names.empty()) checkpointer.save_only = {select};
  if (options.base.empty()) return;
  BaseCheckpoint& base = checkpointer.base.emplace();
  base.step = base::number_in<std::uint64_t>(options.base);
  if (!base.step) base.path = options.base;
}

Report save(Context& context, const DemoOptions& options, std::span<const Source> sources, const Extras& extras) {
  const ProgressLine progress(context.output);
  Options checkpointer_options = options.checkpointer;
  checkpointer_options.waiting.then = OnSilence::kEndProcess;
  checkpointer_options.engine.hints = parse_hints(options.hints);
  checkpointer_options.run_id = "demo";
  choose_content(options, checkpointer_options);
  Checkpointer checkpointer(comm::native_handle(context.communicator), options.directory, checkpointer_options);
  return checkpointer.save(options.step, sources, extras);
}

void print_document(Output& output, const Report& report, const Saved& saved, const Extras& extras) {
  base::Json document = json_document("demo save");
  document["directory"] = report.directory.string();
  document["layout"] = extras.layout;
  document["tensors"] = saved.tensors;
  document["files"] = report.files;
  document["size_bytes"] = saved.bytes;
  document["reused_size_bytes"] = report.reused_bytes;
  add_run(document, report);
  print_json(output, document);
}

// The half that loads: compares every byte of every box with the byte that was saved.

using bench::Verdict;

/// Collective: the state that a step's config.json describes.
bench::DemoState state_of_step(Checkpointer& checkpointer, std::uint64_t step, const DemoOptions& options) {
  const Checkpointer::LoadedExtras extras = checkpointer.load_extras(step, BlobMapping::by_rank());
  if (!extras.carried.contains("config.json")) {
    throw Error(ErrorKind::kUsage, "the checkpoint carries no config.json; name the model with --model");
  }
  std::string config;
  checkpointer.load_carried(step, "config.json", [&](std::span<const std::byte> piece) {
    config.append(reinterpret_cast<const char*>(piece.data()), piece.size());
  });
  return bench::demo_state_of_config(config, options.layers);
}

/// The complete checkpoints, the newest first, and void ones last.
std::vector<StepInfo> complete_steps(Checkpointer& checkpointer, const std::filesystem::path& root) {
  std::vector<StepInfo> steps = checkpointer.steps();
  std::erase_if(steps, [](const StepInfo& step) { return !step.complete; });
  std::ranges::reverse(steps);
  std::stable_partition(steps.begin(), steps.end(), [](const StepInfo& step) { return !step.is_void; });
  if (!steps.empty()) return steps;
  throw Error(ErrorKind::kNotFound, fmt::format("no complete checkpoint under '{}'; make one with cairn demo save",
                                                base::printable(root.string())));
}

/// Collective. Without --model, the model is that of the newest step whose small files can be read.
bench::DemoState state_to_load(Context& context, const DemoOptions& options, Checkpointer& checkpointer) {
  const std::vector<StepInfo> steps = complete_steps(checkpointer, options.directory);
  if (!options.model.empty()) return demo_state(context.communicator, options.model, options.layers);
  for (std::size_t i = 0;; ++i) {
    try {
      return state_of_step(checkpointer, steps[i].step, options);
    } catch (const comm::AgreedError& error) {  // all ranks are here
      if (i + 1 == steps.size() || !checkpoint::is_of_checkpoint(error, steps[i].directory)) throw;
      base::warn_once(fmt::format("the model is taken from checkpoint-{}: {}", steps[i + 1].step, error.what()));
    }
  }
}

/// Collective: checks the blobs of all saving ranks, each blob on one rank, whatever the number of saving ranks.
void check_blobs(Context& context, Checkpointer& checkpointer, std::uint64_t step,
                 const Checkpointer::LoadedExtras& extras) {
  const auto rank = static_cast<std::uint64_t>(context.communicator.rank());
  const auto ranks = static_cast<std::uint64_t>(context.communicator.size());
  for (std::uint64_t first = 0; first < extras.rank_blobs; first += ranks) {
    const std::optional<std::uint64_t> wanted =
        first + rank < extras.rank_blobs ? std::optional(first + rank) : std::nullopt;
    const std::vector<std::byte> blob = checkpointer.load_rank_blob(step, wanted);
    comm::agree(context.communicator, "compare the blobs", [&] {
      if (!wanted || blob == demo_blob(static_cast<int>(*wanted), static_cast<int>(extras.rank_blobs))) return;
      throw Error(ErrorKind::kIntegrity, fmt::format("blob of saving rank {} of {} is not what the demonstration saved",
                                                     *wanted, extras.rank_blobs));
    });
  }
}

void print_document(Output& output, const Report& report, const Verdict& verdict, const bench::DemoState& state) {
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
  document["environment_changes"] = report.environment_changes;
  document["skipped"] = base::Json::array_of(report.skipped, [](const SkippedStep& step) -> base::Json {
    return {{"step", step.step}, {"directory", step.directory.string()}, {"problem", step.problem}};
  });
  add_run(document, report);
  print_json(output, document);
}

void print_text(Context& context, const Report& report, const Verdict& verdict, const std::string& layout) {
  Report told = report;
  told.warnings.clear();  // the load itself has said which steps it passed over
  print_run(context.output, told, report.bytes);
  context.output.summary(fmt::format("loaded {} on {} in layout {}", base::printable(report.directory.string()),
                                     counted(static_cast<std::uint64_t>(context.communicator.size()), "rank"),
                                     base::printable(layout)));
  for (const std::string& line : report.environment_changes) context.output.note("differs: " + line);
  if (verdict.first) return;
  context.output.summary(
      fmt::format("{}, {} equal bit for bit", counted(verdict.tensors, "tensor"), counted(verdict.bytes, "byte")));
}

// The root must exist: a load does not create it.
void check_root(Context& context, const std::filesystem::path& root) {
  comm::agree_on_root(context.communicator, "find checkpoint", 0,
                      [&] { require_directory(root, "; make a checkpoint with cairn demo save"); });
}

}  // namespace

int run_demo_save(Context& context, const DemoOptions& options) {
  const std::string layout = demo_layout(context.communicator, options.layout);
  const std::string model = options.model.empty() ? kDefaultModel : options.model;
  const bench::DemoState state = demo_state(context.communicator, model, options.layers);
  const shard::ShardMap map(shard::Layout::from_text(layout), state.model, state.sections, state.tensors);
  check_memory(context, options, state, map);
  checkpoint::PhaseClock clock;
  std::optional<bench::HeldState> held;
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
  const Saved saved = saved_of(state, options);
  if (options.json) {
    print_document(context.output, report, saved, extras);
    return kExitGood;
  }
  for (const std::string& note : map.notes()) context.output.note(note);
  print_run(context.output, report, saved.bytes);
  context.output.summary(
      fmt::format("saved {}, {} ({}), from {} in layout {} into {} of {}", counted(saved.tensors, "tensor"),
                  counted(saved.bytes, "byte"), base::format_size(saved.bytes),
                  counted(static_cast<std::uint64_t>(context.communicator.size()), "rank"), base::printable(layout),
                  counted(report.files, "file"), base::printable(report.directory.string())));
  if (report.reused_from) {
    context.output.summary(fmt::format("of these {} in {} came from step {}, and were not written again",
                                       base::format_size(report.reused_bytes), counted(report.reused_files, "file"),
                                       *report.reused_from));
  }
  return kExitGood;
}

int run_demo_load(Context& context, const DemoOptions& options) {
  const std::string layout = demo_layout(context.communicator, options.layout);
  check_root(context, options.directory);
  Options checkpointer_options = options.checkpointer;
  checkpointer_options.waiting.then = OnSilence::kEndProcess;
  checkpointer_options.engine.hints = parse_hints(options.hints);
  Checkpointer checkpointer(comm::native_handle(context.communicator), options.directory, checkpointer_options);
  const bench::DemoState state = state_to_load(context, options, checkpointer);
  const shard::ShardMap map(shard::Layout::from_text(layout), state.model, state.sections, state.tensors);
  check_memory(context, options, state, map);
  std::optional<bench::HeldState> held;
  comm::agree(context.communicator, "reserve memory", [&] {
    held.emplace(state, map, context.communicator.rank());
    held->overwrite();
  });
  Report report;
  {
    const ProgressLine progress(context.output);
    report = checkpointer.load_latest(bench::shards_of<Target>(state, *held));
  }
  checkpoint::PhaseClock clock;
  clock.begin("compare");
  const bench::HeldState::Comparison comparison = held->compare();
  clock.add_bytes(comparison.bytes);
  clock.stop();
  for (Phase& phase : clock.reduce(context.communicator)) report.phases.push_back(std::move(phase));
  const Verdict verdict = reduce(context.communicator, comparison, state.tensors.size());
  check_completeness(verdict, state);
  check_blobs(context, checkpointer, report.step, checkpointer.load_extras(report.step, BlobMapping::by_rank()));
  if (options.json) {
    print_document(context.output, report, verdict, state);
  } else {
    for (const std::string& note : map.notes()) context.output.note(note);
    print_text(context, report, verdict, layout);
  }
  if (!verdict.first) return kExitGood;
  context.output.error(describe(*verdict.first, state));
  return kExitFailed;
}

}  // namespace cairn::cli
