#include "checkpoint/save.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <ctime>
#include <functional>
#include <iterator>

#include "base/log.hpp"
#include "base/text.hpp"
#include "cairn/error.hpp"
#include "checkpoint/call.hpp"
#include "checkpoint/check_options.hpp"
#include "checkpoint/part.hpp"
#include "checkpoint/preflight.hpp"
#include "checkpoint/progress.hpp"
#include "checkpoint/read_back.hpp"
#include "comm/agree.hpp"
#include "root/lease.hpp"
#include "root/prune.hpp"
#include "root/root.hpp"
#include "root/run_log.hpp"

namespace cairn::checkpoint {
namespace {

namespace fs = std::filesystem;

/// Adds the blocks of more files; all files are then in the order of their sections.
void add_blocks(root::CommitContent& content, format::BlockTable more) {
  auto& files = content.blocks.files;
  files.insert(files.end(), std::make_move_iterator(more.files.begin()), std::make_move_iterator(more.files.end()));
  const auto section_of = [&](const format::FileBlocks& file) -> const std::string& {
    return content.section_of_file.at(file.name);
  };
  std::stable_sort(files.begin(), files.end(), [&](const format::FileBlocks& a, const format::FileBlocks& b) {
    return plan::section_order(section_of(a), section_of(b)) < 0;
  });
}

void note_codecs(const codes::StateCoder* coder, RootLife& life) {
  life.codecs.clear();
  life.spared_bytes = 0;
  if (coder == nullptr) return;
  const base::Json codecs = coder->quantisation();
  for (const base::Json::Member& codec : codecs.items()) life.codecs[codec.key] = codec.value.text();
  life.spared_bytes = coder->spared_bytes();
}

void note_digests(const FrozenFiles& frozen, const SavePlan& plan, root::CommitContent& content) {
  if (!frozen.digests) return;
  for (std::uint32_t file = 0; file < plan.layout.files.size(); ++file) {
    if (frozen.digests->has(file))
      content.sha256_of_file[plan.layout.files[file].name] = frozen.digests->digest_of(file);
  }
}

void describe_saved(const PlannedSave& planned, const SaveRequest& request, Report& report) {
  if (request.root != nullptr && request.root->lease != nullptr) {
    for (std::string& text : request.root->lease->take_warnings()) report.warnings.push_back(std::move(text));
  }
  if (request.root != nullptr) note_codecs(planned.coder, *request.root);
  report.directory = request.directory;
  report.engine = planned.files->engine->name;
  report.engine_reason = planned.files->engine->reason;
  report.engine_hints = planned.files->engine->hints;
  for (const SavePlan* plan : {planned.files, planned.blob_files}) {
    if (plan == nullptr) continue;
    report.bytes += plan->tensor_bytes;
    report.tensors += plan->tensors;
    report.files += plan->layout.files.size();
  }
}

}  // namespace

std::vector<format::Life> lineage_after(const format::Manifest& opened, std::uint64_t step) {
  std::vector<format::Life> lineage = opened.lineage;
  lineage.push_back({opened.epoch, step, opened.counter});
  return lineage;
}

void set_life(RootLife& life, root::CommitTarget& target, format::Manifest& manifest) {
  manifest.epoch = life.lease->epoch();
  if (life.saved && life.saved->epoch != manifest.epoch) {  // the lease ran out and was taken again
    life.lineage.push_back(*std::exchange(life.saved, std::nullopt));
  }
  manifest.counter = ++life.saves;  // also if the save fails: the counter only grows
  life.saved = {manifest.epoch, manifest.step, manifest.counter};
  manifest.lineage = life.lineage;
  if (!life.lineage.empty() && life.lineage.back().step != manifest.step) {
    manifest.parent = fmt::format("checkpoint-{}", life.lineage.back().step);
  }
  target.may_replace.descent = root::Descent{manifest.epoch, manifest.lineage, manifest.run_id};
  target.may_replace.step = manifest.step;
  target.may_replace.is_part = manifest.part.has_value();
  target.may_replace.is_passed_over = life.passed_over && life.passed_over->contains(manifest.step);
}

Saver::Saver(comm::Communicator& communicator, Options options, io::WindowStore& store, BackgroundLimits limits)
    : communicator_(communicator),
      options_(std::move(options)),
      planner(communicator, options_, store, limits),
      writer(communicator, options_, store) {
  check_options(options_);
}

// A save. The ranks bring shards and agree on a plan: the files, and each rank's extents, the parts of files that it
// writes. A rank's extents are cut into windows, which FileWriter fills from the memory of all ranks and writes. Then
// the directory gets its final name. Between two collective calls nothing fails on one rank alone: the ranks agree on
// anything that may fail.

Report Saver::save(const fs::path& directory, std::uint64_t step, std::span<const Source> given, const Extras& extras,
                   RootLife* root) {
  const PartSources saved(communicator_, options_, given);
  const std::span<const Source> state = saved.get();
  if (root != nullptr) writer.hold(*root);
  Call call(communicator_);
  PlannedSave planned = planner.plan(directory, state, extras.rank_blob, GatherFrom::kSources, call);
  planner.check_replicas(planned, state, step, call);
  return writer.write(planned, {directory, step, extras, root}, {planned.memory}, call);
}

Report SaveWriter::write(PlannedSave& planned, const SaveRequest& request, const RoundMemory& memory, Call& call) {
  Report report = std::move(planned.report);
  root::CommitTarget target;
  root::CommitContent content;
  std::vector<std::string> warnings;
  StepBefore saved;
  comm::agree(communicator_, "describe the checkpoint", [&] {
    root::Lease* const lease = request.root == nullptr ? nullptr : request.root->lease;
    target = {request.directory,
              {options_.overwrite, options_.overwrite_foreign},
              request.root != nullptr,
              options_.read_back,
              lease};
    content = content_of_save(communicator_, planned, options_, request, warnings);
    std::string warning = lease == nullptr ? "" : describe_life(*request.root, target, content.manifest);
    if (!warning.empty()) warnings.push_back(std::move(warning));
    if (communicator_.rank() == 0) {
      check_content(content, planned, options_);
      if (lease != nullptr) expect(planned, request, report);
    }
  });
  check_storage(planned, request, content, report);
  call.begin("commit");
  root::Commit commit(communicator_, std::move(target));  // the destructor removes an unfinished checkpoint
  const fs::path& partial = commit.partial();
  try {
    FrozenFiles frozen = find_frozen(*planned.files, request, memory, call, report);
    content.blocks = write_state(*planned.files, {partial, &frozen, &report}, memory, call);
    comm::agree(communicator_, "note the digests", [&] { note_digests(frozen, *planned.files, content); });
    check_stale(*planned.files, content.blocks, request.step, report);
    comm::agree(communicator_, "remember the checksums", [&] {
      saved = {request.step, content.blocks, {communicator_.rank(), communicator_.size()}};
    });
    if (planned.blob_files != nullptr) {
      const QuietProgress quiet;  // only the files of the state, which take longer, report progress
      format::BlockTable blocks = write_files(*planned.blob_files, {partial}, {planned.blob}, call);
      comm::agree(communicator_, "finish the checksums", [&] { add_blocks(content, std::move(blocks)); });
    }
    std::string warning = read_back_data(communicator_, partial, content.blocks,
                                         {options_.read_back, request.step, store_.pool->idle_memory()}, call);
    comm::agree(communicator_, "note a warning", [&] {
      if (!warning.empty()) report.warnings.push_back(std::move(warning));
    });
    call.begin("commit");
    if (memory.hooks != nullptr) memory.hooks->before_commit();
    commit.finish(std::move(content));
  } catch (const comm::AgreedError& error) {
    commit.name_new_holder(error);
    throw;
  }
  before_ = std::move(saved);
  if (request.root != nullptr && !options_.retention.empty()) prune_root(*request.root, call, report);
  call.stop();
  comm::agree(communicator_, "report", [&] {
    std::ranges::move(warnings, std::back_inserter(report.warnings));
    describe_saved(planned, request, report);
    for (const std::string& warning : report.warnings) base::warn_once(warning);
  });
  call.report(report);
  if (rates_) rates_->add(report.bytes, report.seconds);
  return report;
}

void SaveWriter::expect(const PlannedSave& planned, const SaveRequest& request, Report& report) {
  constexpr std::uint64_t kLogBytes = 64ULL << 10;  // a line has about 500 bytes, and five saves count
  if (!rates_) rates_.emplace(root::read_end_of_log(request.root->lease->root(), kLogBytes));
  const std::uint64_t bytes = planned.files->tensor_bytes;
  report.expected_seconds = rates_->seconds_for(bytes);
  if (report.expected_seconds == 0) return;
  expect_seconds(report.expected_seconds);
  base::log_debug(fmt::format("step {}: a save of {} takes about {:.1f} s, as the last {} did ({}/s)", request.step,
                              base::format_size(bytes), report.expected_seconds, base::counted(rates_->saves(), "save"),
                              base::format_size(static_cast<std::uint64_t>(*rates_->median()))));
}

void SaveWriter::check_storage(const PlannedSave& planned, const SaveRequest& request,
                               const root::CommitContent& content, Report& report) {
  if (!options_.preflight) return;
  Preflight look{.planned = planned, .request = request, .content = content, .options = options_};
  root::Lease* const lease = request.root == nullptr ? nullptr : request.root->lease;
  if (lease != nullptr) {
    look.make_room = [&, lease](bool prunes) { make_room(*lease, prunes, report); };
  }
  refuse_hopeless(communicator_, look, report.warnings);
}

void SaveWriter::make_room(root::Lease& lease, bool prunes, Report& report) {
  if (!prunes) return root::clear_own(lease);
  Retention rules = options_.retention;
  // The new checkpoint counts; the newest of the others stays whatever the rules.
  if (rules.keep_last) rules.keep_last = std::max<std::uint64_t>(*rules.keep_last, 2) - 1;
  prune_by(rules, lease, report);
}

void SaveWriter::prune_by(const Retention& rules, root::Lease& lease, Report& report) {
  const root::PrunePlan plan = root::plan_prune(lease.root(), rules, loads_, std::time(nullptr));
  Pruning pruning = root::prune(lease, plan, loads_);
  std::erase_if(pruning.steps, [](const StepFate& fate) { return !fate.goes; });
  std::ranges::move(pruning.steps, std::back_inserter(report.pruned));
  report.freed_bytes += pruning.freed_bytes;
  std::ranges::move(pruning.warnings, std::back_inserter(report.warnings));
}

/// The checkpoint is committed: whatever goes wrong now is a warning.
void SaveWriter::prune_root(const RootLife& root, Call& call, Report& report) {
  call.begin("prune");
  comm::agree(communicator_, "prune", [&] {
    if (root.lease == nullptr) return;
    try {
      prune_by(options_.retention, *root.lease, report);
    } catch (const std::exception& error) {
      report.warnings.push_back(fmt::format("older checkpoints were not pruned: {}", error.what()));
    }
  });
}

FrozenFiles SaveWriter::find_frozen(const SavePlan& plan, const SaveRequest& request, const RoundMemory& memory,
                                    Call& call, Report& report) const {
  FrozenFiles frozen;
  if (std::ranges::find(plan.frozen_files, true) == plan.frozen_files.end()) return frozen;
  comm::agree(communicator_, "prepare the digests", [&] {
    frozen.digests.emplace(plan.layout, plan.frozen_files, options_.files.block_bytes);
    if (plan.engine->traits.uses_mpi_io && communicator_.rank() == 0)
      report.warnings.push_back(
          "engine mpiio writes all files, and takes none from earlier checkpoints (Options::reuse)");
  });
  // Rounds that are gathered from the program's memory can be gathered only once.
  const bool is_in_parts = memory.first_late != 0 && memory.first_late < plan.exchange->rounds();
  if (request.root == nullptr || is_in_parts || !can_reuse(options_, plan)) return frozen;
  call.begin("find");
  std::optional<format::Part> part;
  fs::path root;
  comm::agree(communicator_, "find earlier files", [&] {
    part = part_of(options_);
    if (request.root->lease != nullptr) root = request.root->lease->root();
  });
  frozen.earlier = find_earlier(communicator_, options_, plan, root, part, report);
  return frozen;
}

format::BlockTable SaveWriter::write_state(SavePlan& plan, const Destination& to, const RoundMemory& memory,
                                           Call& call) const {
  const NonFinite action = options_.checks.non_finite;
  if (action == NonFinite::kIgnore) return write_files(plan, to, memory, call);
  Report& report = *to.report;
  comm::agree(communicator_, "count values that are not finite", [&] { plan.counter.emplace(plan.floats); });
  format::BlockTable blocks = write_files(plan, to, memory, call);
  NonFiniteValues values = collect_non_finite(communicator_, *plan.counter, plan.catalog);
  plan.counter.reset();
  std::string text;
  comm::agree(communicator_, "count values that are not finite", [&] {
    if (values.tensors != 0) text = words_of(values);
    if (!text.empty() && action == NonFinite::kWarn) report.warnings.push_back(text);
    report.non_finite = std::move(values);
  });
  if (!text.empty() && action == NonFinite::kRefuse) throw comm::AgreedError(ErrorKind::kState, text);
  return blocks;
}

format::BlockTable SaveWriter::write_files(SavePlan& plan, const Destination& to, const RoundMemory& memory,
                                           Call& call) const {
  FrozenFiles* const frozen = to.frozen != nullptr && to.frozen->digests ? to.frozen : nullptr;
  const bool may_take = frozen != nullptr && frozen->earlier.step;
  const auto take = [&] {
    return take_files(communicator_, options_, plan, frozen->earlier, *frozen->digests, to.partial, *to.report);
  };
  io::Exchange& exchange = *plan.exchange;
  const std::shared_ptr<io::WindowPool> buffers = store_.pool;
  const auto gather = [&](std::uint64_t round, const io::WindowBuffer&) {
    const std::uint64_t bytes = exchange.gather(round, memory.of(round));
    call.add_bytes(bytes);
    return bytes;
  };
  FileWriter files(communicator_, {.engine = plan.engine->name,
                                   .hints = options_.engine.hints,
                                   .directory = to.partial,
                                   .layout = plan.layout,
                                   .extents = *plan.extents,
                                   .windows = exchange.windows(),
                                   .buffers = *buffers,
                                   .rounds = exchange.rounds(),
                                   .bypass_way = plan.bypass_way,
                                   .bypass = &plan.bypass,
                                   .bypass_memory = {memory.of(0), plan.device.get()},
                                   .hooks = memory.hooks,
                                   .counter = plan.counter ? &*plan.counter : nullptr,
                                   .digests = frozen != nullptr ? &*frozen->digests : nullptr,
                                   .may_be_there = may_take ? frozen->earlier.may_be_equal : std::vector<bool>(),
                                   .take = take});
  format::BlockTable blocks = files.write(std::ref(gather), call);
  comm::agree(communicator_, "note hints", [&] { plan.engine->hints = files.hints(); });
  return blocks;
}

void SaveWriter::check_stale(const SavePlan& plan, const format::BlockTable& blocks, std::uint64_t step,
                             Report& report) const {
  if (!before_.has_blocks_of(blocks.block_bytes)) return;
  std::vector<SectionChange> changes = changes_since(communicator_, before_, plan.layout, blocks);
  std::string text;
  comm::agree(communicator_, "compare with the step before", [&] {
    const bool is_said = options_.checks.stale != StaleSections::kIgnore && step != before_.step();
    if (is_said) text = stale_words(changes, plan.changing_sections, before_.step());
    report.unchanged_since = before_.step();
    report.unchanged = std::move(changes);
    if (!text.empty() && options_.checks.stale == StaleSections::kWarn) report.warnings.push_back(text);
  });
  if (text.empty() || options_.checks.stale != StaleSections::kRefuse) return;
  throw comm::AgreedError(ErrorKind::kState, text);
}

/// Rank-local, on rank 0 with the root held: sets the run and the epoch of the save. Returns words_of_beginning() for
/// the first save of `life`, otherwise "".
std::string SaveWriter::describe_life(RootLife& life, root::CommitTarget& target, format::Manifest& manifest) const {
  const fs::path& root = life.lease->root();
  check_base(options_, root, manifest.step);
  const bool is_first = life.run_id.empty();
  std::vector<root::RootEntry> entries;
  if (is_first) {  // another saver may have named the root's run
    entries = root::list_root(root);
    life.run_id = root::name_of_run(root, entries, run_);
  }
  manifest.run_id = life.run_id;
  set_life(life, target, manifest);
  if (!is_first || manifest.part) return {};
  return root::words_of_beginning(root, entries, *target.may_replace.descent, manifest.step);
}

}  // namespace cairn::checkpoint
