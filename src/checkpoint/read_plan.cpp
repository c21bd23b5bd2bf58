#include "checkpoint/read_plan.hpp"

#include <algorithm>
#include <utility>

#include "checkpoint/window_io.hpp"
#include "comm/agree.hpp"
#include "format/blocks.hpp"
#include "os/fault.hpp"
#include "plan/extents.hpp"
#include "plan/transfers.hpp"
#include "shard/box_math.hpp"

namespace cairn::checkpoint {
namespace {

/// Loads of less than a 64th of a checkpoint, of which a conversion makes many, go through windows: what bypasses them
/// is found by looking at every block of all files.
constexpr std::size_t kBypassParts = 64;

plan::BlockSet wanted_blocks(const OpenCheckpoint& checkpoint, std::span<const plan::MemoryBox> wanted,
                             const plan::BlockGrid& grid) {
  plan::BlockSet blocks(grid);
  for (const plan::MemoryBox& want : wanted) {
    const auto& tensor = checkpoint.stored.tensors[want.tensor];
    for (const auto& stored : tensor.boxes) {
      const auto region = shard::intersect(want.box, stored.box);
      if (!region) continue;
      blocks.insert(plan::file_span(tensor.dtype, stored, *region));
    }
  }
  return blocks;
}

}  // namespace

ReadPlan make_read_plan(comm::Communicator& communicator, const OpenCheckpoint& checkpoint,
                        std::span<const plan::MemoryBox> wanted, const ReadPlanOptions& how) {
  const std::uint64_t block_bytes = checkpoint.blocks ? checkpoint.blocks->block_bytes : format::kDefaultBlockBytes;
  ReadPlan plan;
  std::optional<plan::BlockGrid> grid;
  std::optional<plan::BlockSet> blocks;
  comm::agree(communicator, "plan the load", [&] {
    os::fault_memory("memory.load");
    for (const plan::MemoryBox& want : wanted) {
      const auto& tensor = checkpoint.stored.tensors.at(want.tensor);
      check_wanted(want, tensor.name, tensor.dtype, tensor.shape);
    }
    plan.budget = split_budget(how.memory_budget_bytes, block_bytes, how.choice);
    plan.device = &how.device;
    if (std::any_of(wanted.begin(), wanted.end(), plan::is_on_device)) {
      plan.budget = plan.budget.with_device_copies(how.device.bytes());
    }
    grid.emplace(file_sizes(checkpoint.stored), block_bytes);
    blocks.emplace(wanted_blocks(checkpoint, wanted, *grid));
    plan.memory = wanted;
    plan.pieces = plan::whole_pieces(communicator.rank(), wanted);
  });
  communicator.all_reduce(blocks->words(), comm::ReduceOp::kOr);
  if (blocks->count() == 0) return plan;
  if (how.choice.bypass && blocks->count() >= grid->blocks() / kBypassParts) {
    comm::agree(communicator, "plan the load", [&] {
      const auto regions = plan::regions_of_memory(plan.pieces, plan.memory, checkpoint.stored);
      plan.bypass.emplace(BypassRead{io::BypassRuns(regions), {}});
    });
    const plan::BlockSet tiled = io::keep_tiled_blocks(communicator, *grid, plan.bypass->runs);
    comm::agree(communicator, "plan the load", [&] { plan.bypass->ranges = tiled.ranges(); });
    blocks->remove(tiled);
  }
  std::vector<std::uint32_t> groups;
  std::vector<plan::FileRange> ranges;
  comm::agree(communicator, "plan the load", [&] {
    groups = plan::section_groups(checkpoint.stored);
    ranges = blocks->ranges();
  });
  plan::ExtentMap extents =
      assign_extents(communicator, std::move(groups), std::move(ranges), block_bytes, how.choice, Access::kRead);
  plan.budget = plan.budget.fitted_to(extents);
  comm::agree(communicator, "plan the load", [&] {
    plan.extents = std::make_unique<plan::ExtentMap>(std::move(extents));
    plan.windows = plan::cut_windows(plan.extents->of(communicator.rank()), plan.budget.window_bytes, block_bytes);
  });
  plan.rounds = communicator.max(plan.windows.size());
  plan.buffers = how.store.get(communicator, largest_buffer(plan.windows), plan.budget.bounce_bytes);
  return plan;
}

io::Exchange make_exchange(comm::Communicator& communicator, const OpenCheckpoint& checkpoint, const ReadPlan& plan) {
  std::vector<plan::Runs> transfers;
  comm::agree(communicator, "plan the load", [&] {
    const auto outside = plan.bypass ? plan::OutsideExtents::kStays : plan::OutsideExtents::kIsError;
    transfers = plan::transfers_of_memory(plan.pieces, plan.memory, checkpoint.stored, *plan.extents, outside);
  });
  return {communicator,
          checkpoint.stored.files,
          *plan.extents,
          plan.budget.window_bytes,
          *plan.buffers,
          std::move(transfers),
          {plan.budget.exchange_bytes, plan.device}};
}

}  // namespace cairn::checkpoint
