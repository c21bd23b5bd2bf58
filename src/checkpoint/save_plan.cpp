#include "checkpoint/save_plan.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <string_view>
#include <utility>

#include "base/mix.hpp"
#include "base/text.hpp"
#include "cairn/error.hpp"
#include "checkpoint/replicas.hpp"
#include "checkpoint/window_io.hpp"
#include "codes/coding_report.hpp"
#include "comm/agree.hpp"
#include "plan/hf_layout.hpp"
#include "plan/transfers.hpp"
#include "planning/claim_steps.hpp"
#include "planning/describe.hpp"
#include "planning/layout_steps.hpp"
#include "planning/save_limits.hpp"
#include "shard/name_pattern.hpp"

namespace cairn::checkpoint {
namespace {

/// This rank's blob as a memory box; an empty list without a blob.
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

/// Whether Options::frozen selects a tensor of the catalog.
class FrozenSelection {
 public:
  explicit FrozenSelection(const Options& options) : options_(options) {
    for (const Selection& selection : options.frozen) selectors_.emplace_back(selection);
  }

  [[nodiscard]] std::size_t size() const { return selectors_.size(); }
  [[nodiscard]] bool selects(std::size_t selector, const plan::PackedCatalog::Cursor& tensor, bool is_coded) const {
    const shard::Selector& one = selectors_[selector];
    const std::string_view stored = tensor.name();
    const std::string_view given = is_coded ? stored.substr(0, stored.rfind('@')) : stored;
    return one.selects(tensor.section(), stored) || one.selects(tensor.section(), given);
  }
  [[nodiscard]] bool any_selects(const plan::PackedCatalog::Cursor& tensor) const {
    const bool is_coded = options_.quantisation.codecs.contains(std::string(tensor.section()));
    for (std::size_t i = 0; i < size(); ++i) {
      if (selects(i, tensor, is_coded)) return true;
    }
    return false;
  }

 private:
  const Options& options_;
  std::vector<shard::Selector> selectors_;
};

/// The tensors that Options::frozen selects. A pattern matches a tensor by the name that the program gives
/// ("w.exp_avg") or by the stored name ("w.exp_avg@q8").
class FrozenTensors {
 public:
  FrozenTensors(const plan::HfLayout& files, const Options& options)
      : files_(files), options_(options), selection_(options) {}

  /// Sections with bytes that are not frozen.
  [[nodiscard]] std::vector<std::string> changing_sections() const {
    std::vector<std::string> changing;
    for (std::size_t s = 0; s < files_.sections(); ++s) {
      const bool is_changing = any_tensor(s, [&](const plan::PackedCatalog::Cursor& tensor, bool) {
        return tensor.size_bytes() != 0 && !selection_.any_selects(tensor);
      });
      if (is_changing) changing.push_back(files_.section(s).name);
    }
    return changing;
  }

  /// A line for each selection that selects no tensor.
  [[nodiscard]] std::vector<std::string> idle() const {
    std::vector<std::string> lines;
    for (std::size_t i = 0; i < selection_.size(); ++i) {
      bool is_used = false;
      for (std::size_t s = 0; s < files_.sections() && !is_used; ++s) {
        is_used = any_tensor(s, [&](const plan::PackedCatalog::Cursor& tensor, bool is_coded) {
          return selection_.selects(i, tensor, is_coded);
        });
      }
      if (is_used) continue;
      const auto words = [](const std::vector<std::string>& patterns) {
        return patterns.empty() ? "all" : base::printable(base::joined(patterns));
      };
      lines.push_back(fmt::format("Options::frozen[{}] (sections {}, names {}) selects no tensor that is saved", i,
                                  words(options_.frozen[i].sections), words(options_.frozen[i].names)));
    }
    return lines;
  }

 private:
  template <class Test>
  bool any_tensor(std::size_t number, const Test& test) const {
    const plan::HfLayout::Section& section = files_.section(number);
    const bool is_coded = options_.quantisation.codecs.contains(section.name);
    plan::PackedCatalog::Cursor at(files_.catalog(), section.first_tensor);
    for (std::uint32_t t = section.first_tensor; t < section.end_tensor && at.next(); ++t) {
      if (test(at, is_coded)) return true;
    }
    return false;
  }

  const plan::HfLayout& files_;
  const Options& options_;
  FrozenSelection selection_;
};

/// The tensors of floats in the files that this rank writes to.
std::vector<FloatsInFile> floats_of(const plan::HfLayout& files, const SavePlan& made, int rank) {
  std::vector<std::uint32_t> written = made.bypass.files();
  for (const plan::Extent& extent : made.extents->of(rank)) written.push_back(extent.file);
  std::sort(written.begin(), written.end());
  written.erase(std::unique(written.begin(), written.end()), written.end());
  return floats_in_files(files, made.layout, written);
}

}  // namespace

std::vector<plan::MemorySpan> SavePlan::memory_from(std::uint64_t first_round) const {
  std::vector<plan::MemorySpan> spans = exchange->memory_from(first_round);
  if (first_round == 0) bypass.cover_memory(spans);
  return spans;
}

std::vector<std::optional<io::BoxInFile>> SavePlan::memory_places() const {
  return has_direct_runs() ? bypass.boxes_in_files() : std::vector<std::optional<io::BoxInFile>>();
}

/// The files of a save, before the movement of bytes is planned.
struct SavePlanner::Files {
  std::unique_ptr<plan::HfLayout> layout;
  std::vector<std::uint64_t> header_bytes;               ///< by file
  std::map<std::string, std::string> indexes;            ///< on rank 0
  std::vector<plan::Piece> pieces;                       ///< pieces of this rank; Piece::tensor is a catalog number
  std::vector<plan::Replica> replicas;                   ///< replicas of this rank's boxes
  std::unique_ptr<const interop::CheckedState> checked;  ///< null for the ranks' blobs
};

SavePlanner::SavePlanner(comm::Communicator& communicator, const Options& options, io::WindowStore& store,
                         BackgroundLimits limits)
    : communicator_(communicator), options_(options), store_(store), limits_(limits) {
  if (codes::StateCoder::is_needed(options_.quantisation)) coder_ = std::make_unique<codes::StateCoder>();
}

PlannedSave SavePlanner::plan(const std::filesystem::path& storage, std::span<const Source> given,
                              std::span<const std::byte> blob, GatherFrom from, Call& call) {
  PlannedSave planned;
  call.begin("plan");
  choose_engine_for(storage);
  plan_state(planned, given, from, call);
  plan_blob(planned, given, blob);
  planned.files = plan_.get();
  planned.blob_files = blob_plan_.get();
  planned.coder = coder_.get();
  return planned;
}

/// Describes the state, codes it if is_coding(), and makes a plan unless the last plan is still valid.
void SavePlanner::plan_state(PlannedSave& planned, std::span<const Source> given, GatherFrom from, Call& call) {
  Report& report = planned.report;
  planning::DescribedState saved{given, {}};
  base::Bytes description;
  std::uint64_t changed = 0;
  comm::agree(communicator_, "describe the state", [&] {
    planning::check_shards(given);
    description = planning::describe(given, options_);
    if (from == GatherFrom::kSnapshot) description.push_back(std::byte{1});
    changed = plan_ && plan_->description == description ? 0 : 1;
    if (changed != 0) planning::check_distinct(given);  // an unchanged state was checked when the plan was made
  });
  report.plan_reused = communicator_.max(changed) == 0 && renew_buffers(*plan_);
  if (!report.plan_reused) {
    plan_.reset();
    blob_plan_.reset();  // made for the windows of plan_
  }
  if (coder_) {  // the coded state is planned and saved in place of the given state
    call.begin("encode");
    planned.coded = coder_->code(communicator_, given, options_.quantisation, report.plan_reused);
    codes::add_coding_report(std::move(planned.coded.errors), report);
    saved = {planned.coded.sources, planned.coded.codings};
    call.begin("plan");
  }
  std::vector<plan::MemoryBox> on_host;
  comm::agree(communicator_, "number the memory boxes", [&] {
    say_once(std::move(planned.coded.warnings), report);
    planned.memory = planning::memory_boxes(saved.sources);
    if (plan_ || from == GatherFrom::kSources) return;
    on_host = planned.memory;
    for (plan::MemoryBox& box : on_host) box.memory = Memory::kHost;
  });
  if (!plan_) {
    const std::span<const plan::MemoryBox> boxes = from == GatherFrom::kSources ? planned.memory : on_host;
    plan_ = plan_transfers(plan_files(saved, boxes), boxes, from, nullptr);
    plan_->description = std::move(description);
    const bool has_replicas = !plan_->replicas.empty() || (coder_ && coder_->has_replicas());
    plan_->has_replicas = communicator_.max(has_replicas ? 1 : 0) != 0;
    comm::agree(communicator_, "note warnings", [&] { say_once(std::move(plan_->idle), report); });
  }
}

/// Blobs may change their size with every save, so they are not part of the state's plan. The blobs' plan depends only
/// on the sizes and the windows, and is reused as long as both stay the same.
void SavePlanner::plan_blob(PlannedSave& planned, std::span<const Source> given, std::span<const std::byte> blob) {
  if (communicator_.max(blob.size()) == 0) {
    blob_plan_.reset();
    return;
  }
  std::vector<std::uint64_t> sizes;
  comm::agree(communicator_, "describe the blobs", [&] {
    check_no_rank_section(given);
    sizes.resize(static_cast<std::size_t>(communicator_.size()));
    sizes[static_cast<std::size_t>(communicator_.rank())] = blob.size();
    planned.blob = blob_boxes(blob, communicator_.rank());
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
    blob_plan_ =
        plan_transfers(plan_blob_files(sizes, planned.blob), planned.blob, GatherFrom::kSources, store_.pool.get());
    blob_plan_->description = std::move(description);
  }
  if (renew_buffers(*plan_)) return;  // the blobs may have taken larger windows than a small state
  forget_plan();
  comm::agree(communicator_, "plan the windows", [] {
    throw Error(ErrorKind::kIo,
                "the ranks of a node share the memory of larger windows otherwise than before; save again");
  });
}

SavePlanner::Files SavePlanner::plan_files(const planning::DescribedState& state,
                                           std::span<const plan::MemoryBox> boxes) {
  Files known;
  plan::PackedCatalog catalog = planning::exchange_catalog(communicator_, state);
  std::vector<std::uint32_t> tensor_of_shard;
  comm::agree(communicator_, "assign the tensors to files", [&] {
    tensor_of_shard = planning::number_tensors(catalog, state.sources);
    const interop::Form& form = interop::form_of_save(options_.files.form);
    plan::LayoutOptions layout = form.layout(options_.files);
    if (options_.reuse != Reuse::kNever) {
      layout.is_apart = [frozen = FrozenSelection(options_)](const plan::PackedCatalog::Cursor& tensor) {
        return frozen.any_selects(tensor);
      };
    }
    known.layout = std::make_unique<plan::HfLayout>(std::move(catalog), std::move(layout));
    const plan::PackedCatalog& all = known.layout->catalog();
    known.checked = form.check(all, interop::share_of_catalog(all, communicator_.rank(), communicator_.size()));
    const std::string problem = known.checked->problem();
    if (!problem.empty()) throw Error(ErrorKind::kUsage, problem);
  });
  known.header_bytes = planning::exchange_header_sizes(communicator_, *known.layout);
  known.indexes = planning::exchange_indexes(communicator_, *known.layout);
  planning::SettledClaims settled =
      planning::exchange_claims(communicator_, known.layout->catalog(), boxes, tensor_of_shard);
  known.pieces = std::move(settled.pieces);
  known.replicas = std::move(settled.replicas);
  return known;
}

/// As plan_files(), but without exchanges of the catalog and of claims. `sizes[r]`: size of rank r's blob.
/// `boxes`: this rank's blob, if any, with the rank as MemoryBox::tensor.
SavePlanner::Files SavePlanner::plan_blob_files(std::span<const std::uint64_t> sizes,
                                                std::span<const plan::MemoryBox> boxes) {
  Files known;
  comm::agree(communicator_, "assign the blobs to files", [&] {
    plan::CatalogPacker packer;
    for (std::size_t rank = 0; rank < sizes.size(); ++rank) {
      packer.add({std::string(format::kRankSection),
                  planning::rank_blob_name(static_cast<int>(rank)),
                  DType::kU8,
                  {sizes[rank]}});
    }
    const base::Bytes catalog = packer.take();
    const interop::Form& form = interop::form_of_save(options_.files.form);
    known.layout =
        std::make_unique<plan::HfLayout>(plan::PackedCatalog(std::span(&catalog, 1)), form.layout(options_.files));
    known.pieces = plan::whole_pieces(communicator_.rank(), boxes);
  });
  known.header_bytes = planning::exchange_header_sizes(communicator_, *known.layout);
  known.indexes = planning::exchange_indexes(communicator_, *known.layout);
  return known;
}

/// Collective: extents and transfers. Requires: `boxes` are the boxes of known.pieces.
/// `others`: null, or the windows of a plan that stays alive, which the new plan shares.
std::unique_ptr<SavePlan> SavePlanner::plan_transfers(Files known, std::span<const plan::MemoryBox> boxes,
                                                      GatherFrom from, const io::WindowPool* others) {
  plan::HfLayout& files = *known.layout;
  const std::optional<io::BypassWay> bypass_way = choose_bypass(from);
  std::unique_ptr<SavePlan> made;
  MemorySplit budget;
  std::vector<std::uint32_t> groups;
  std::vector<plan::FileRange> ranges;
  std::optional<plan::BlockGrid> grid;
  format::StoredCheckpoint places;  // places of the tensors of which this rank provides pieces
  comm::agree(communicator_, "lay out the files", [&] {
    made = std::make_unique<SavePlan>();
    made->engine = &*choice_;
    made->layout = files.without_content(known.header_bytes);
    made->layout.index_files = std::move(known.indexes);
    made->checked = std::move(known.checked);
    made->replicas = std::move(known.replicas);
    planning::check_block_table(made->layout.files, options_.files.block_bytes);
    budget = split_budget(options_.limits.memory_budget_bytes, options_.files.block_bytes);
    made->tensors = files.catalog().size();
    made->tensor_bytes = files.tensor_bytes();
    const FrozenTensors frozen(files, options_);
    made->changing_sections = frozen.changing_sections();
    made->idle = frozen.idle();
    places = planning::place_pieces(made->layout, files, known.pieces);
    groups = files.group_of_files();
    for (std::uint32_t file = 0; file < files.files(); ++file) made->frozen_files.push_back(files.is_apart(file));
    ranges = plan::whole_files(file_sizes(made->layout.stored));
    made->bypass_way = bypass_way;
    if (bypass_way) grid.emplace(file_sizes(made->layout.stored), options_.files.block_bytes);
  });
  if (grid) {
    comm::agree(communicator_, "find long runs", [&] {
      made->bypass = io::BypassRuns(plan::regions_of_memory(known.pieces, boxes, places), *bypass_way);
    });
    const plan::BlockSet bypass = io::keep_tiled_blocks(communicator_, *grid, made->bypass);
    comm::agree(communicator_, "find long runs", [&] {
      plan::BlockSet blocks(*grid);
      for (const plan::FileRange& range : ranges) blocks.insert(range);
      blocks.remove(bypass);
      ranges = blocks.ranges();
    });
  }
  plan::ExtentMap extents = assign_extents(communicator_, std::move(groups), std::move(ranges),
                                           options_.files.block_bytes, *choice_, Access::kWrite);
  budget = budget.fitted_to(extents);
  if (others != nullptr) budget = budget.beside(others->bytes(), options_.files.block_bytes);
  std::vector<plan::Runs> transfers;
  std::vector<plan::Window> windows;
  comm::agree(communicator_, "plan the exchange", [&] {
    if (std::any_of(boxes.begin(), boxes.end(), plan::is_on_device)) {
      budget = budget.with_device_copies(device_share(options_.limits.memory_budget_bytes));
      made->device = std::make_unique<io::DeviceCopies>(budget.device_bytes);
    }
    made->extents = std::make_unique<plan::ExtentMap>(std::move(extents));
    planning::add_headers(made->layout, files, made->extents->of(communicator_.rank()));
    if (options_.checks.non_finite != NonFinite::kIgnore) {
      made->floats = floats_of(files, *made, communicator_.rank());
      if (communicator_.rank() == 0) made->catalog = files.catalog();
    }
    known.layout.reset();
    const auto outside = bypass_way ? plan::OutsideExtents::kStays : plan::OutsideExtents::kIsError;
    transfers = plan::transfers_of_memory(known.pieces, boxes, places, *made->extents, outside);
    places = {};
    windows =
        plan::cut_windows(made->extents->of(communicator_.rank()), budget.window_bytes, options_.files.block_bytes);
  });
  made->buffer_bytes = largest_buffer(windows);
  const auto buffers = store_.get(communicator_, made->buffer_bytes);
  made->buffers = buffers;
  made->exchange.emplace(communicator_, made->layout.stored.files, *made->extents, budget.window_bytes, *buffers,
                         std::move(transfers),
                         io::ExchangeOptions{budget.exchange_bytes, made->device.get(), limits_.largest_message_bytes});
  return made;
}

void SavePlanner::check_replicas(PlannedSave& planned, std::span<const Source> given, std::uint64_t step, Call& call) {
  if (options_.checks.replicas == ReplicaCheck::kOff || !plan_->has_replicas) return;
  call.begin("replicas");
  std::vector<HeldReplica> held;
  std::vector<codes::MomentReplica> moments;
  comm::agree(communicator_, "find the replicas", [&] {
    const std::span<const Source> saved = coder_ ? planned.coded.sources : given;
    add_replicas(plan_->replicas, planned.memory, saved, held);
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
  // Changes the sample when a step is saved again, and when a program resumes and saves the next step.
  const std::uint64_t save = base::split_mix64(step) + comparisons_++;
  std::string warning = compare_replicas(communicator_, {held, save, options_.checks, *plan_->sample_rule, device});
  comm::agree(communicator_, "note a warning", [&] {
    if (!warning.empty()) planned.report.warnings.push_back(std::move(warning));
  });
  call.begin("plan");
}

const EngineChoice& SavePlanner::choose_engine_for(const std::filesystem::path& directory) {
  if (choice_) return *choice_;
  choice_ = choose_engine(communicator_, {options_.engine.name, options_.engine.aggregators_per_node}, directory);
  return *choice_;
}

std::optional<io::BypassWay> SavePlanner::choose_bypass(GatherFrom from) const {
  if (limits_.has_rounds_only || options_.reuse != Reuse::kNever) return std::nullopt;  // rounds can be digested first
  if (choice_->bypass) return io::BypassWay::kCopied;
  const bool is_direct = choice_->direct_bypass && limits_.writes_snapshots && from == GatherFrom::kSnapshot;
  return is_direct ? std::optional(io::BypassWay::kDirect) : std::nullopt;
}

void SavePlanner::say_once(std::vector<std::string> warnings, Report& report) {
  for (std::string& line : warnings) {
    if (said_.insert(line).second) report.warnings.push_back(std::move(line));
  }
}

/// A load may have replaced the plan's buffers, or the program may have freed them. False: the plan cannot be used.
bool SavePlanner::renew_buffers(SavePlan& plan) {
  if (store_.pool && plan.buffers.lock() == store_.pool) return true;
  const auto buffers = store_.get(communicator_, plan.buffer_bytes);
  const bool fits = plan.exchange->use(*buffers);
  plan.buffers = buffers;
  return communicator_.min(fits ? 1 : 0) != 0;
}

void SavePlanner::use_rounds_only() {
  limits_.has_rounds_only = true;
  forget_plan();
}

void SavePlanner::forget_plan() {
  plan_.reset();
  blob_plan_.reset();
  replica_copies_.reset();
  if (coder_) coder_ = std::make_unique<codes::StateCoder>();
}

}  // namespace cairn::checkpoint
