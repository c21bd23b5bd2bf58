#include "checkpoint/save_plan.hpp"

#include <optional>
#include <utility>

#include "checkpoint/window_io.hpp"
#include "comm/agree.hpp"
#include "plan/transfer.hpp"
#include "planning/catalog_exchange.hpp"
#include "planning/layout_steps.hpp"

namespace cairn::checkpoint {

std::unique_ptr<SavePlan> make_save_plan(comm::Communicator& communicator, const DescribedState& state,
                                         std::span<const LocalBox> boxes, const SavePlanOptions& how) {
  const Options& options = how.options;
  std::unique_ptr<SavePlan> made;
  plan::PackedCatalog catalog = exchange_catalog(communicator, state);
  std::unique_ptr<plan::HfLayout> files;
  std::vector<std::uint32_t> tensor_of_shard;
  comm::agree(communicator, "deal the tensors to files", [&] {
    made = std::make_unique<SavePlan>();
    tensor_of_shard = number_tensors(catalog, state.sources);
    files = std::make_unique<plan::HfLayout>(
        std::move(catalog), plan::LayoutOptions{options.max_file_bytes, options.align_bytes, options.file_metadata});
  });
  const auto header_bytes = exchange_header_sizes(communicator, *files);
  auto indexes = exchange_indexes(communicator, *files);
  MemorySplit budget;
  comm::agree(communicator, "lay out the files", [&] {
    made->layout = files->without_content(header_bytes);
    made->layout.index_files = std::move(indexes);
    budget = split_budget(options.memory_budget_bytes, options.block_bytes);
    made->tensors = files->catalog().size();
    made->tensor_bytes = files->tensor_bytes();
  });
  const auto parts = exchange_claims(communicator, files->catalog(), {boxes, tensor_of_shard});
  std::vector<std::uint32_t> groups;
  std::vector<plan::FileRange> ranges;
  std::optional<plan::CellGrid> grid;
  comm::agree(communicator, "lay out the files", [&] {
    groups = files->section_of_files();
    ranges = plan::whole_files(file_sizes(made->layout.stored));
    if (how.choice.straight) grid.emplace(file_sizes(made->layout.stored), options.block_bytes);
  });
  if (grid) {
    comm::agree(communicator, "find long runs", [&] {
      plan::FileLayout own = files->without_content(header_bytes);
      add_needed_content(own, *files, {}, parts);  // the places of the tensors that this rank provides
      made->straight = io::StraightRuns(plan::regions_of_memory(communicator.rank(), parts, own.stored), own.stored);
    });
    const plan::CellSet straight = io::keep_tiled_cells(communicator, *grid, made->straight);
    comm::agree(communicator, "find long runs", [&] {
      plan::CellSet cells(*grid);
      for (const plan::FileRange& range : ranges) cells.insert(range);
      cells.remove(straight);
      ranges = cells.ranges();
    });
  }
  plan::ExtentMap extents =
      deal_extents(communicator, std::move(groups), std::move(ranges), options.block_bytes, how.choice, Access::kWrite);
  budget = budget.fitted_to(extents);
  std::vector<plan::Transfer> transfers;
  std::vector<plan::Window> windows;
  comm::agree(communicator, "plan the exchange", [&] {
    made->extents = std::make_unique<plan::ExtentMap>(std::move(extents));
    add_needed_content(made->layout, *files, made->extents->of(communicator.rank()), parts);
    files.reset();
    const auto outside = how.choice.straight ? plan::OutsideExtents::kStays : plan::OutsideExtents::kIsError;
    transfers = plan::transfers_of_memory(communicator.rank(), parts, made->layout.stored, *made->extents, outside);
    windows = plan::cut_windows(made->extents->of(communicator.rank()), budget.window_bytes, options.block_bytes);
  });
  made->buffers = how.store.get(communicator, largest_buffer(windows));
  made->exchange.emplace(communicator, made->layout.stored, *made->extents, budget.window_bytes, *made->buffers,
                         std::move(transfers), io::ExchangeOptions{budget.exchange_bytes});
  return made;
}

}  // namespace cairn::checkpoint
