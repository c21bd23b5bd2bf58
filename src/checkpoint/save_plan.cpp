#include "checkpoint/save_plan.hpp"

#include "checkpoint/catalog_exchange.hpp"
#include "checkpoint/layout_steps.hpp"
#include "checkpoint/window_io.hpp"
#include "comm/agree.hpp"
#include "plan/transfer.hpp"

namespace cairn::checkpoint {

std::unique_ptr<SavePlan> make_save_plan(comm::Communicator& communicator, const DescribedState& state,
                                         std::span<const LocalBox> boxes, const SavePlanOptions& how) {
  const Options& options = how.options;
  auto made = std::make_unique<SavePlan>();
  plan::PackedCatalog catalog = exchange_catalog(communicator, state);
  std::unique_ptr<plan::HfLayout> files;
  std::vector<std::uint32_t> tensor_of_shard;
  comm::agree(communicator, "deal the tensors to files", [&] {
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
  std::vector<plan::FileRange> ranges = plan::whole_files(file_sizes(made->layout.stored));
  if (how.choice.straight) {
    const plan::CellGrid grid(file_sizes(made->layout.stored), options.block_bytes);
    comm::agree(communicator, "find long runs", [&] {
      plan::FileLayout own = files->without_content(header_bytes);
      add_needed_content(own, *files, {}, parts);  // the places of the tensors that this rank provides
      made->straight = io::StraightRuns(plan::regions_of_memory(communicator.rank(), parts, own.stored), own.stored);
    });
    plan::CellSet cells(grid);
    for (const plan::FileRange& range : ranges) cells.insert(range);
    cells.remove(io::keep_tiled_cells(communicator, grid, made->straight));
    ranges = cells.ranges();
  }
  made->extents = std::make_unique<plan::ExtentMap>(deal_extents(
      communicator, files->section_of_files(), std::move(ranges), options.block_bytes, how.choice, Access::kWrite));
  budget = budget.fitted_to(*made->extents);
  std::vector<plan::Transfer> transfers;
  comm::agree(communicator, "plan the exchange", [&] {
    add_needed_content(made->layout, *files, made->extents->of(communicator.rank()), parts);
    files.reset();
    const auto outside = how.choice.straight ? plan::OutsideExtents::kStays : plan::OutsideExtents::kIsError;
    transfers = plan::transfers_of_memory(communicator.rank(), parts, made->layout.stored, *made->extents, outside);
  });
  const auto windows =
      plan::cut_windows(made->extents->of(communicator.rank()), budget.window_bytes, options.block_bytes);
  made->buffers = how.store.get(communicator, largest_buffer(windows));
  made->exchange =
      std::make_unique<io::Exchange>(communicator, made->layout.stored, *made->extents, budget.window_bytes,
                                     *made->buffers, std::move(transfers), io::ExchangeOptions{budget.exchange_bytes});
  return made;
}

}  // namespace cairn::checkpoint
