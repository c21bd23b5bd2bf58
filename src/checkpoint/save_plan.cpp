#include "checkpoint/save_plan.hpp"

#include "checkpoint/catalog_exchange.hpp"
#include "checkpoint/window_io.hpp"
#include "comm/agree.hpp"
#include "format/safetensors.hpp"
#include "plan/transfer.hpp"

namespace cairn::checkpoint {

std::unique_ptr<SavePlan> make_save_plan(comm::Communicator& communicator, std::span<const Source> state,
                                         std::span<const LocalBox> boxes, const SavePlanOptions& how) {
  const Options& options = how.options;
  auto made = std::make_unique<SavePlan>();
  made->catalog = exchange_catalog(communicator, state);
  MemorySplit budget;
  comm::agree(communicator, "lay out the files", [&] {
    made->layout =
        plan::lay_out_hf(made->catalog, {options.max_file_bytes, options.align_bytes, options.file_metadata});
    budget = split_budget(options.memory_budget_bytes, options.block_bytes);
    for (const auto& tensor : made->catalog.tensors) {
      made->tensor_bytes += format::tensor_bytes(tensor.dtype, tensor.shape, tensor.name);
    }
  });
  made->extents = std::make_unique<plan::ExtentMap>(deal_extents(communicator, made->layout.stored,
                                                                 plan::whole_files(file_sizes(made->layout.stored)),
                                                                 options.block_bytes, how.choice));
  const auto parts = exchange_claims(communicator, made->catalog, state, boxes);
  std::vector<plan::Transfer> transfers;
  comm::agree(communicator, "plan the exchange", [&] {
    transfers = plan::transfers_of_memory(communicator.rank(), parts, made->layout.stored, *made->extents);
  });
  const auto windows =
      plan::cut_windows(made->extents->of(communicator.rank()), budget.window_bytes, options.block_bytes);
  made->buffers = std::make_unique<io::WindowPool>(communicator, largest_buffer(windows));
  made->exchange =
      std::make_unique<io::Exchange>(communicator, made->layout.stored, *made->extents, budget.window_bytes,
                                     *made->buffers, std::move(transfers), io::ExchangeOptions{budget.exchange_bytes});
  made->description = describe(state, options);
  return made;
}

}  // namespace cairn::checkpoint
