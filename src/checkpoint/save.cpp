#include "checkpoint/save.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <optional>
#include <utility>

#include "base/log.hpp"
#include "base/mix.hpp"
#include "base/text.hpp"
#include "cairn/error.hpp"
#include "checkpoint/call.hpp"
#include "checkpoint/check_options.hpp"
#include "checkpoint/file_writer.hpp"
#include "checkpoint/read_back.hpp"
#include "checkpoint/replicas.hpp"
#include "checkpoint/save_content.hpp"
#include "codes/state_coder.hpp"
#include "comm/agree.hpp"
#include "format/manifest.hpp"
#include "planning/save_limits.hpp"
#include "root/lease.hpp"
#include "root/root.hpp"
#include "root/run_name.hpp"

namespace cairn::checkpoint {
namespace {

namespace fs = std::filesystem;

/// This rank's blob as its box of the blobs' files; none without a blob.
std::vector<plan::MemoryBox> blob_boxes(std::span<const std::byte> blob, int rank) {
  if (blob.empty()) return {};
  auto* const bytes = const_cast<std::byte*>(blob.data());  // only read
  return {{static_cast<std::uint32_t>(rank), {{0}, {blob.size()}}, {bytes, blob.size()}}};
}

void check_no_rank_section(std::span<const Source> state) {
  for (const Source& source : state) {
    if (source.section != format::kRankSection) continue;
    throw Error(ErrorKind::kUsage,
                fmt::format("tensor '{}': section {} has the files of the ranks' blobs (Extras::rank_blob); give the "
                            "tensor another section, or no rank a blob",
                            base::printable(source.name), format::kRankSection));
  }
}

/// Adds the blocks of more files in the order of a layout of all files.
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
  manifest.counter = ++life.saves;  // also for a save that will fail: it only grows
  life.saved = {manifest.epoch, manifest.step, manifest.counter};
  manifest.lineage = life.lineage;
  if (!life.lineage.empty() && life.lineage.back().step != manifest.step) {
    manifest.parent = fmt::format("checkpoint-{}", life.lineage.back().step);
  }
  target.may_replace.descent = root::Descent{manifest.epoch, manifest.lineage, manifest.run_id};
  target.may_replace.step = manifest.step;
  target.may_replace.is_passed_over = life.passed_over && life.passed_over->contains(manifest.step);
}

/// The checkpoint to be made of a planned state.
struct Saver::Made {
  root::CommitTarget target;
  root::CommitContent content;
  std::vector<std::string> warnings;
};

Saver::Saver(comm::Communicator& communicator, Options options, io::WindowStore& store, Manners manners)
    : communicator_(communicator),
      options_(std::move(options)),
      store_(store),
      manners_(manners),
      run_{options_.run_id, options_.allow_other_run} {
  check_options(options_);
  if (codes::StateCoder::is_needed(options_.quantisation)) coder_ = std::make_unique<codes::StateCoder>();
}

Saver::~Saver() = default;

// A save: plan(), check_replicas(), write(). The ranks bring shards and agree on a plan: the files, and the parts of
// them, its extents, that each rank writes. A rank's extents are cut into windows, which FileWriter fills from the memory
// of all ranks and writes. Then the directory gets its name. Between two collective calls nothing fails on one rank
// alone: anything that may fail is agreed on.
Report Saver::save(const fs::path& directory, std::uint64_t step, std::span<const Source> given, const Extras& extras,
                   RootLife* root) {
  if (root != nullptr) hold(*root);
  Call call(communicator_);
  Planned planned = plan(directory, given, extras.rank_blob, Gathered::kFromSources, call);
  check_replicas(planned, given, step, call);
  return write(planned, {directory, step, extras, root}, {planned.state.memory}, call);
}

const EngineChoice& Saver::choose_engine_for(const fs::path& directory) {
  if (choice_) return *choice_;
  choice_ = choose_engine(communicator_, {options_.engine.name, options_.engine.aggregators_per_node}, directory);
  return *choice_;
}

std::optional<io::BypassWay> Saver::bypass_way(Gathered gathered) const {
  if (manners_.has_rounds_only) return std::nullopt;
  if (choice_->bypass) return io::BypassWay::kCopied;
  const bool is_direct = choice_->direct_bypass && manners_.writes_snapshots && gathered == Gathered::kFromSnapshot;
  return is_direct ? std::optional(io::BypassWay::kDirect) : std::nullopt;
}

Saver::Planned Saver::plan(const fs::path& beside, std::span<const Source> given, std::span<const std::byte> blob,
                           Gathered gathered, Call& call) {
  Planned planned;
  call.begin("plan");
  choose_engine_for(beside);
  planned.state = plan_state(given, gathered, call, planned.report);
  plan_blob(given, blob, planned.state);
  return planned;
}

void Saver::check_replicas(Planned& planned, std::span<const Source> given, std::uint64_t step, Call& call) {
  if (options_.checks.replicas == ReplicaCheck::kOff || !plan_->has_replicas) return;
  call.begin("replicas");
  std::vector<HeldReplica> held;
  std::vector<codes::MomentReplica> moments;
  comm::agree(communicator_, "find the replicas", [&] {
    const std::span<const Source> saved = coder_ ? planned.state.coded.sources : given;
    add_replicas(plan_->replicas, planned.state.memory, saved, held);
    if (coder_) moments = coder_->replicas(given);
    for (const codes::MomentReplica& moment : moments) {  // numbered after the saved tensors
      held.push_back({&moment.box, &given[moment.source], plan_->tensors + moment.moment, moment.replica.holders,
                      moment.replica.is_mixed});
    }
    if (plan_->device || replica_copies_) return;
    const auto is_on_device = [](const HeldReplica& one) { return plan::is_on_device(*one.box); };
    if (std::ranges::none_of(held, is_on_device)) return;
    replica_copies_ = std::make_unique<io::DeviceCopies>(device_share(options_.limits.memory_budget_bytes));
  });
  io::DeviceCopies* const device = plan_->device ? plan_->device.get() : replica_copies_.get();
  if (!plan_->sample_rule) plan_->sample_rule = agree_on_sample(communicator_, held);
  // Another sample for a step that is saved again, and for a program that resumes and saves the next step.
  const std::uint64_t save = base::split_mix64(step) + comparisons_++;
  std::string warning = compare_replicas(communicator_, {held, save, options_.checks, *plan_->sample_rule, device});
  comm::agree(communicator_, "note a warning", [&] {
    if (!warning.empty()) planned.report.warnings.push_back(std::move(warning));
  });
  call.begin("plan");
}

Report Saver::write(Planned& planned, const Place& place, const RoundMemory& memory, Call& call, SaveHooks* escort) {
  Report report = std::move(planned.report);
  Made made = describe_checkpoint(place);
  StepBefore saved;
  call.begin("commit");
  root::Commit commit(communicator_, std::move(made.target));  // the destructor removes an unfinished checkpoint
  try {
    made.content.blocks = write_state(memory, {commit.partial(), escort}, call, report);
    check_stale(made.content.blocks, place.step, report);
    comm::agree(communicator_, "remember the checksums", [&] {
      saved = {place.step, made.content.blocks, {communicator_.rank(), communicator_.size()}};
    });
    if (blob_plan_) {
      const QuietProgress quiet;  // progress is that of the state's files, which take longer
      format::BlockTable blocks = write_files(*blob_plan_, {planned.state.blob}, {commit.partial()}, call);
      comm::agree(communicator_, "finish the checksums", [&] { add_blocks(made.content, std::move(blocks)); });
    }
    std::string warning =
        read_back_data(communicator_, commit.partial(), made.content.blocks,
                       {options_.read_back, made.content.manifest.step, store_.pool->idle_memory()}, call);
    comm::agree(communicator_, "note a warning", [&] {
      if (!warning.empty()) report.warnings.push_back(std::move(warning));
    });
    call.begin("commit");
    if (escort != nullptr) escort->before_commit();
    commit.finish(std::move(made.content));
  } catch (const comm::AgreedError& error) {
    commit.name_new_holder(error);
    throw;
  }
  before_ = std::move(saved);
  call.stop();
  comm::agree(communicator_, "report", [&] {
    std::ranges::move(made.warnings, std::back_inserter(report.warnings));
    describe_saved(place.directory, place.root, report);
    for (const std::string& warning : report.warnings) base::warn_once(warning);
  });
  call.report(report);
  return report;
}

void Saver::check_stale(const format::BlockTable& blocks, std::uint64_t step, Report& report) const {
  if (!before_.has_blocks_of(blocks.block_bytes)) return;
  std::vector<SectionChange> changes = changes_since(communicator_, before_, plan_->layout, blocks);
  std::string text;
  comm::agree(communicator_, "compare with the step before", [&] {
    const bool is_said = options_.checks.stale != StaleSections::kIgnore && step != before_.step();
    if (is_said) text = stale_words(changes, plan_->changing_sections, before_.step());
    report.unchanged_since = before_.step();
    report.unchanged = std::move(changes);
    if (!text.empty() && options_.checks.stale == StaleSections::kWarn) report.warnings.push_back(text);
  });
  if (text.empty() || options_.checks.stale != StaleSections::kRefuse) return;
  throw comm::AgreedError(ErrorKind::kState, text);
}

format::BlockTable Saver::write_state(const RoundMemory& memory, Writing how, Call& call, Report& report) {
  const NonFinite action = options_.checks.non_finite;
  if (action == NonFinite::kIgnore) return write_files(*plan_, memory, how, call);
  std::optional<NonFiniteCounter> counter;
  comm::agree(communicator_, "count values that are not finite", [&] { counter.emplace(plan_->floats); });
  how.counter = &*counter;
  format::BlockTable blocks = write_files(*plan_, memory, how, call);
  NonFiniteValues values = collect_non_finite(communicator_, *counter, plan_->catalog);
  std::string text;
  comm::agree(communicator_, "count values that are not finite", [&] {
    if (values.tensors != 0) text = words_of(values);
    if (!text.empty() && action == NonFinite::kWarn) report.warnings.push_back(text);
    report.non_finite = std::move(values);
  });
  if (!text.empty() && action == NonFinite::kRefuse) throw comm::AgreedError(ErrorKind::kState, text);
  return blocks;
}

format::BlockTable Saver::write_files(SavePlan& plan, const RoundMemory& memory, const Writing& how, Call& call) {
  io::Exchange& exchange = *plan.exchange;
  const std::shared_ptr<io::WindowPool> buffers = store_.pool;
  const auto gather = [&](std::uint64_t round, const io::WindowBuffer&) {
    const std::uint64_t bytes = exchange.gather(round, memory.of(round));
    call.add_bytes(bytes);
    return bytes;
  };
  FileWriter files(communicator_, {.engine = choice_->name,
                                   .hints = options_.engine.hints,
                                   .directory = how.partial,
                                   .layout = plan.layout,
                                   .extents = *plan.extents,
                                   .windows = exchange.windows(),
                                   .buffers = *buffers,
                                   .rounds = exchange.rounds(),
                                   .bypass_way = plan.bypass_way,
                                   .bypass = &plan.bypass,
                                   .bypass_memory = {memory.of(0), plan.device.get()},
                                   .hooks = how.escort,
                                   .counter = how.counter});
  format::BlockTable blocks = files.write(std::ref(gather), call);
  comm::agree(communicator_, "note hints", [&] { choice_->hints = files.hints(); });
  return blocks;
}

/// Describes the state, codes it, and makes a plan unless the last one is still valid.
Saver::StateToSave Saver::plan_state(std::span<const Source> given, Gathered gathered, Call& call, Report& report) {
  StateToSave state;
  planning::DescribedState saved{given, {}};
  base::Bytes description;
  std::uint64_t changed = 0;
  comm::agree(communicator_, "describe the state", [&] {
    planning::check_shards(given);
    description = planning::describe(given, options_);
    if (gathered == Gathered::kFromSnapshot) description.push_back(std::byte{1});
    changed = plan_ && plan_->description == description ? 0 : 1;
    if (changed != 0) planning::check_distinct(given);  // else checked when the plan was made
  });
  report.plan_reused = communicator_.max(changed) == 0 && renew_buffers(*plan_);
  if (!report.plan_reused) {
    plan_.reset();
    blob_plan_.reset();  // made for the windows of plan_
  }
  if (coder_) {  // the coded state is planned and saved in place of the given one
    call.begin("encode");
    state.coded = coder_->code(communicator_, given, options_.quantisation, report.plan_reused);
    codes::add_coding_report(std::move(state.coded.errors), report);
    saved = {state.coded.sources, state.coded.codings};
    call.begin("plan");
  }
  std::vector<plan::MemoryBox> planned;  // if they differ from those of the state
  comm::agree(communicator_, "number the memory boxes", [&] {
    say_once(std::move(state.coded.warnings), report);
    state.memory = planning::memory_boxes(saved.sources);
    if (plan_ || gathered == Gathered::kFromSources) return;
    planned = state.memory;
    for (plan::MemoryBox& box : planned) box.memory = Memory::kHost;
  });
  if (!plan_) {
    plan_ = make_save_plan(communicator_, saved, gathered == Gathered::kFromSources ? state.memory : planned,
                           {options_, *choice_, store_, bypass_way(gathered), nullptr, manners_.largest_message_bytes});
    plan_->description = std::move(description);
    const bool has_replicas = !plan_->replicas.empty() || (coder_ && coder_->has_replicas());
    plan_->has_replicas = communicator_.max(has_replicas ? 1 : 0) != 0;
    comm::agree(communicator_, "note warnings", [&] { say_once(std::move(plan_->idle), report); });
  }
  return state;
}

void Saver::say_once(std::vector<std::string> warnings, Report& report) {
  for (std::string& line : warnings) {
    if (said_.insert(line).second) report.warnings.push_back(std::move(line));
  }
}

/// Since the plan was made, a load may have replaced its buffers by larger ones, or the program freed them.
bool Saver::renew_buffers(SavePlan& plan) {
  if (store_.pool && plan.buffers.lock() == store_.pool) return true;
  const auto buffers = store_.get(communicator_, plan.buffer_bytes);
  const bool fits = plan.exchange->use(*buffers);
  plan.buffers = buffers;
  return communicator_.min(fits ? 1 : 0) != 0;
}

std::uint64_t Saver::rounds() const { return plan_->exchange->rounds(); }

std::vector<plan::MemorySpan> Saver::memory_from(std::uint64_t first_round) const {
  std::vector<plan::MemorySpan> spans = plan_->exchange->memory_from(first_round);
  if (first_round == 0) plan_->bypass.cover_memory(spans);
  return spans;
}

std::vector<std::optional<io::BoxInFile>> Saver::memory_places() const {
  return has_direct_runs() ? plan_->bypass.boxes_in_files() : std::vector<std::optional<io::BoxInFile>>();
}

void Saver::use_rounds_only() {
  manners_.has_rounds_only = true;
  forget_plan();
}

void Saver::forget_plan() {
  plan_.reset();
  blob_plan_.reset();
  replica_copies_.reset();
  if (coder_) coder_ = std::make_unique<codes::StateCoder>();
}

/// Blobs may have another size in every save, so they are not part of the state's plan. Their own plan needs only all
/// sizes, and is reused while these stay the same.
void Saver::plan_blob(std::span<const Source> given, std::span<const std::byte> blob, StateToSave& state) {
  if (communicator_.max(blob.size()) == 0) {
    blob_plan_.reset();
    return;
  }
  std::vector<std::uint64_t> sizes;
  comm::agree(communicator_, "describe the blobs", [&] {
    check_no_rank_section(given);
    sizes.resize(static_cast<std::size_t>(communicator_.size()));
    sizes[static_cast<std::size_t>(communicator_.rank())] = blob.size();
    state.blob = blob_boxes(blob, communicator_.rank());
  });
  communicator_.all_reduce(sizes, comm::ReduceOp::kSum);
  bool is_changed = true;
  base::Bytes description;
  comm::agree(communicator_, "describe the blobs", [&] {
    base::ByteWriter out;
    out.u64s(sizes);
    description = out.take();
    is_changed = !blob_plan_ || blob_plan_->description != description;
  });
  if (is_changed || !renew_buffers(*blob_plan_)) {
    blob_plan_.reset();
    blob_plan_ = make_blob_plan(communicator_, sizes, state.blob,
                                {options_, *choice_, store_, bypass_way(Gathered::kFromSources), store_.pool.get(),
                                 manners_.largest_message_bytes});
    blob_plan_->description = std::move(description);
  }
  if (renew_buffers(*plan_)) return;  // the blobs may have taken larger windows than a small state
  forget_plan();
  comm::agree(communicator_, "plan the windows", [] {
    throw Error(ErrorKind::kIo,
                "the ranks of a node share the memory of larger windows otherwise than before; save again");
  });
}

/// Rank-local, before anything is written: whether readers will accept the small files of the commit.
void Saver::check_content(const root::CommitContent& content) const {
  std::vector<plan::DataFile> files;
  for (const SavePlan* plan : {plan_.get(), blob_plan_.get()}) {
    if (plan == nullptr) continue;
    for (const plan::DataFile& file : plan->layout.files)
      files.push_back({file.name, file.section, {}, file.size_bytes});
  }
  planning::check_block_table(files, options_.files.block_bytes);
  std::vector<std::string> carried;
  for (const auto& file : content.carried) carried.push_back(file.first);
  planning::check_manifest(content.manifest, files, carried);
}

void Saver::hold(const RootLife& root) const { root::hold_root(communicator_, root.lease, &run_); }

void Saver::describe_life(RootLife& life, std::uint64_t step, Made& made) const {
  const fs::path& root = life.lease->root();
  const bool is_first = life.run_id.empty();
  std::vector<root::RootEntry> entries;
  if (is_first) {  // another saver may have named the root before
    entries = root::list_root(root);
    life.run_id = root::name_of_run(root, entries, run_);
  }
  made.content.manifest.run_id = life.run_id;
  set_life(life, made.target, made.content.manifest);
  if (!is_first) return;
  std::string text = root::words_of_beginning(root, entries, *made.target.may_replace.descent, step);
  if (!text.empty()) made.warnings.push_back(std::move(text));
}

Saver::Made Saver::describe_checkpoint(const Place& place) const {
  Made made;
  comm::agree(communicator_, "describe the checkpoint", [&] {
    root::Lease* const lease = place.root == nullptr ? nullptr : place.root->lease;
    made.target = {place.directory,
                   {options_.overwrite, options_.overwrite_foreign},
                   place.root != nullptr,
                   options_.read_back,
                   lease};
    made.content = content_of(place.step, place.extras, made.warnings);
    if (lease != nullptr) describe_life(*place.root, place.step, made);
    if (communicator_.rank() == 0) check_content(made.content);
  });
  return made;
}

root::CommitContent Saver::content_of(std::uint64_t step, const Extras& extras,
                                      std::vector<std::string>& warnings) const {
  root::CommitContent content = root::make_content({});
  if (communicator_.rank() == 0) content.carried = carried_content(extras);
  format::Manifest& manifest = content.manifest;
  manifest.has_step = true;
  manifest.step = step;
  manifest.run_id = options_.run_id;
  const interop::Form& form = interop::form_of_save(options_.files.form);
  manifest.form = form.traits().word;
  manifest.layout = extras.layout;
  manifest.ranks = static_cast<std::uint64_t>(communicator_.size());
  manifest.user_metadata = extras.metadata;
  add_sections(content, plan_->layout);
  std::map<std::string, std::string> texts = plan_->layout.index_files;
  if (blob_plan_) {
    add_sections(content, blob_plan_->layout);
    manifest.rank_blobs = manifest.ranks;
    texts.insert(blob_plan_->layout.index_files.begin(), blob_plan_->layout.index_files.end());
  }
  if (communicator_.rank() == 0) {
    const interop::StateToWrite state = state_of_save(extras, content.carried, step, form.traits().reads_config);
    interop::FormFiles files = plan_->checked->files_beside(std::move(texts), state, 0);
    texts = std::move(files.texts);
    for (auto& [key, value] : files.values) manifest.user_metadata[key] = std::move(value);
    warnings = std::move(files.notes);
  }
  add_texts(content, std::move(texts));
  if (coder_) {
    manifest.quantisation = coder_->quantisation();
    if (!coder_->rebuilt().empty()) manifest.extra[format::kRebuiltKey] = coder_->rebuilt();
  }
  manifest.extra[kEngineKey] = choice_->name;
  manifest.extra[kHintsKey] = options_.engine.hints;
  return content;
}

void Saver::describe_saved(const fs::path& directory, const RootLife* root, Report& report) const {
  if (root != nullptr && root->lease != nullptr) {
    for (std::string& text : root->lease->take_warnings()) report.warnings.push_back(std::move(text));
  }
  report.directory = directory;
  report.engine = choice_->name;
  report.engine_reason = choice_->reason;
  report.engine_hints = choice_->hints;
  for (const SavePlan* plan : {plan_.get(), blob_plan_.get()}) {
    if (plan == nullptr) continue;
    report.bytes += plan->tensor_bytes;
    report.tensors += plan->tensors;
    report.files += plan->layout.files.size();
  }
}

}  // namespace cairn::checkpoint
