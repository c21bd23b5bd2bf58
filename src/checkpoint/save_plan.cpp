#include "checkpoint/save_plan.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <string_view>
#include <utility>

#include "base/text.hpp"
#include "cairn/error.hpp"
#include "checkpoint/window_io.hpp"
#include "comm/agree.hpp"
#include "plan/hf_layout.hpp"
#include "plan/transfers.hpp"
#include "planning/describe.hpp"
#include "planning/layout_steps.hpp"
#include "planning/save_limits.hpp"
#include "shard/name_pattern.hpp"

namespace cairn::checkpoint {
namespace {

/// The files of a save, before the movement of bytes is planned.
struct PlannedFiles {
  std::unique_ptr<plan::HfLayout> files;
  std::vector<std::uint64_t> header_bytes;               ///< by file
  std::map<std::string, std::string> indexes;            ///< on rank 0
  std::vector<plan::Piece> pieces;                       ///< that this rank provides, by catalog number
  std::vector<plan::Replica> replicas;                   ///< of its boxes
  std::unique_ptr<const interop::CheckedState> checked;  ///< null for the ranks' blobs
};

/// The tensors that Options::frozen selects. Patterns name tensors as the program gives them:
/// "w.exp_avg", even if "w.exp_avg@q8" is stored.
class FrozenTensors {
 public:
  FrozenTensors(const plan::HfLayout& files, const Options& options) : files_(files), options_(options) {
    for (const Selection& selection : options.frozen) selectors_.emplace_back(selection);
  }

  /// Sections with bytes that are not frozen.
  [[nodiscard]] std::vector<std::string> changing_sections() const {
    std::vector<std::string> changing;
    for (std::size_t s = 0; s < files_.sections(); ++s) {
      const bool is_changing = any_tensor(s, [&](const plan::PackedCatalog::Cursor& tensor, bool is_coded) {
        return tensor.size_bytes() != 0 && std::ranges::none_of(selectors_, [&](const shard::Selector& one) {
                 return selects(one, tensor, is_coded);
               });
      });
      if (is_changing) changing.push_back(files_.section(s).name);
    }
    return changing;
  }

  /// A line for each selection that selects no tensor.
  [[nodiscard]] std::vector<std::string> idle() const {
    std::vector<std::string> lines;
    for (std::size_t i = 0; i < selectors_.size(); ++i) {
      bool is_used = false;
      for (std::size_t s = 0; s < files_.sections() && !is_used; ++s) {
        is_used = any_tensor(s, [&](const plan::PackedCatalog::Cursor& tensor, bool is_coded) {
          return selects(selectors_[i], tensor, is_coded);
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
  static bool selects(const shard::Selector& selector, const plan::PackedCatalog::Cursor& tensor, bool is_coded) {
    const std::string_view stored = tensor.name();
    const std::string_view given = is_coded ? stored.substr(0, stored.rfind('@')) : stored;
    return selector.selects(tensor.section(), stored) || selector.selects(tensor.section(), given);
  }
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
  std::vector<shard::Selector> selectors_;
};

/// The tensors of floats in the files that this rank writes to.
std::vector<FloatsInFile> floats_of(const plan::HfLayout& files, const SavePlan& made, int rank) {
  std::vector<std::uint32_t> written = made.bypass.files();
  for (const plan::Extent& extent : made.extents->of(rank)) written.push_back(extent.file);
  std::sort(written.begin(), written.end());
  written.erase(std::unique(written.begin(), written.end()), written.end());
  return floats_in_files(files, made.layout, written);
}

/// Collective: extents and transfers. Requires: `boxes` are those of known.pieces.
std::unique_ptr<SavePlan> plan_transfers(comm::Communicator& communicator, PlannedFiles known,
                                         std::span<const plan::MemoryBox> boxes, const SavePlanOptions& how) {
  const Options& options = how.options;
  plan::HfLayout& files = *known.files;
  std::unique_ptr<SavePlan> made;
  MemorySplit budget;
  std::vector<std::uint32_t> groups;
  std::vector<plan::FileRange> ranges;
  std::optional<plan::BlockGrid> grid;
  format::StoredCheckpoint places;  // of the tensors that this rank provides pieces of
  comm::agree(communicator, "lay out the files", [&] {
    made = std::make_unique<SavePlan>();
    made->layout = files.without_content(known.header_bytes);
    made->layout.index_files = std::move(known.indexes);
    made->checked = std::move(known.checked);
    made->replicas = std::move(known.replicas);
    planning::check_block_table(made->layout.files, options.files.block_bytes);
    budget = split_budget(options.limits.memory_budget_bytes, options.files.block_bytes);
    made->tensors = files.catalog().size();
    made->tensor_bytes = files.tensor_bytes();
    const FrozenTensors frozen(files, options);
    made->changing_sections = frozen.changing_sections();
    made->idle = frozen.idle();
    places = planning::place_pieces(made->layout, files, known.pieces);
    groups = files.section_of_files();
    ranges = plan::whole_files(file_sizes(made->layout.stored));
    made->bypass_way = how.bypass_way;
    if (how.bypass_way) grid.emplace(file_sizes(made->layout.stored), options.files.block_bytes);
  });
  if (grid) {
    comm::agree(communicator, "find long runs", [&] {
      made->bypass = io::BypassRuns(plan::regions_of_memory(known.pieces, boxes, places), *how.bypass_way);
    });
    const plan::BlockSet bypass = io::keep_tiled_blocks(communicator, *grid, made->bypass);
    comm::agree(communicator, "find long runs", [&] {
      plan::BlockSet blocks(*grid);
      for (const plan::FileRange& range : ranges) blocks.insert(range);
      blocks.remove(bypass);
      ranges = blocks.ranges();
    });
  }
  plan::ExtentMap extents = assign_extents(communicator, std::move(groups), std::move(ranges),
                                           options.files.block_bytes, how.choice, Access::kWrite);
  budget = budget.fitted_to(extents);
  if (how.beside != nullptr) budget = budget.beside(how.beside->bytes(), options.files.block_bytes);
  std::vector<plan::Runs> transfers;
  std::vector<plan::Window> windows;
  comm::agree(communicator, "plan the exchange", [&] {
    if (std::any_of(boxes.begin(), boxes.end(), plan::is_on_device)) {
      budget = budget.with_device_copies(device_share(options.limits.memory_budget_bytes));
      made->device = std::make_unique<io::DeviceCopies>(budget.device_bytes);
    }
    made->extents = std::make_unique<plan::ExtentMap>(std::move(extents));
    planning::add_headers(made->layout, files, made->extents->of(communicator.rank()));
    if (options.checks.non_finite != NonFinite::kIgnore) {
      made->floats = floats_of(files, *made, communicator.rank());
      if (communicator.rank() == 0) made->catalog = files.catalog();
    }
    known.files.reset();
    const auto outside = how.bypass_way ? plan::OutsideExtents::kStays : plan::OutsideExtents::kIsError;
    transfers = plan::transfers_of_memory(known.pieces, boxes, places, *made->extents, outside);
    places = {};
    windows = plan::cut_windows(made->extents->of(communicator.rank()), budget.window_bytes, options.files.block_bytes);
  });
  made->buffer_bytes = largest_buffer(windows);
  const auto buffers = how.store.get(communicator, made->buffer_bytes);
  made->buffers = buffers;
  made->exchange.emplace(communicator, made->layout.stored.files, *made->extents, budget.window_bytes, *buffers,
                         std::move(transfers),
                         io::ExchangeOptions{budget.exchange_bytes, made->device.get(), how.largest_message_bytes});
  return made;
}

}  // namespace

std::unique_ptr<SavePlan> make_save_plan(comm::Communicator& communicator, const planning::DescribedState& state,
                                         std::span<const plan::MemoryBox> boxes, const SavePlanOptions& how) {
  PlannedFiles known;
  plan::PackedCatalog catalog = planning::exchange_catalog(communicator, state);
  std::vector<std::uint32_t> tensor_of_shard;
  comm::agree(communicator, "assign the tensors to files", [&] {
    tensor_of_shard = planning::number_tensors(catalog, state.sources);
    const interop::Form& form = interop::form_of_save(how.options.files.form);
    known.files = std::make_unique<plan::HfLayout>(std::move(catalog), form.layout(how.options.files));
    const plan::PackedCatalog& all = known.files->catalog();
    known.checked = form.check(all, interop::share_of_catalog(all, communicator.rank(), communicator.size()));
    const std::string problem = known.checked->problem();
    if (!problem.empty()) throw Error(ErrorKind::kUsage, problem);
  });
  known.header_bytes = planning::exchange_header_sizes(communicator, *known.files);
  known.indexes = planning::exchange_indexes(communicator, *known.files);
  planning::SettledClaims settled =
      planning::exchange_claims(communicator, known.files->catalog(), boxes, tensor_of_shard);
  known.pieces = std::move(settled.pieces);
  known.replicas = std::move(settled.replicas);
  return plan_transfers(communicator, std::move(known), boxes, how);
}

std::unique_ptr<SavePlan> make_blob_plan(comm::Communicator& communicator, std::span<const std::uint64_t> sizes,
                                         std::span<const plan::MemoryBox> boxes, const SavePlanOptions& how) {
  PlannedFiles known;
  comm::agree(communicator, "assign the blobs to files", [&] {
    plan::CatalogPacker packer;
    for (std::size_t rank = 0; rank < sizes.size(); ++rank) {
      packer.add({std::string(format::kRankSection),
                  planning::rank_blob_name(static_cast<int>(rank)),
                  DType::kU8,
                  {sizes[rank]}});
    }
    const base::Bytes catalog = packer.take();
    const interop::Form& form = interop::form_of_save(how.options.files.form);
    known.files =
        std::make_unique<plan::HfLayout>(plan::PackedCatalog(std::span(&catalog, 1)), form.layout(how.options.files));
    known.pieces = plan::whole_pieces(communicator.rank(), boxes);
  });
  known.header_bytes = planning::exchange_header_sizes(communicator, *known.files);
  known.indexes = planning::exchange_indexes(communicator, *known.files);
  return plan_transfers(communicator, std::move(known), boxes, how);
}

}  // namespace cairn::checkpoint
