#include "checkpoint/read_plan.hpp"

#include <algorithm>
#include <string>
#include <unordered_map>

#include "base/checked.hpp"
#include "base/internal_error.hpp"
#include "cairn/error.hpp"
#include "checkpoint/window_io.hpp"
#include "comm/agree.hpp"
#include "format/blocks.hpp"
#include "os/fault.hpp"
#include "plan/transfers.hpp"
#include "shard/box_math.hpp"

namespace cairn::checkpoint {
namespace {

/// Batches of less than a 64th of a checkpoint only use windows: finding bypass runs examines every block of all files,
/// and a conversion may have many batches.
constexpr std::size_t kBypassParts = 64;

/// About one part in this many of the memory budget, but at least kLeastPlanBytes, is for a plan of several batches.
constexpr std::uint64_t kPlanParts = 8;
constexpr std::uint64_t kLeastPlanBytes = 1ULL << 20;

/// Plan memory for a region, the part of a wanted box in a stored box: its runs, on the ranks that make and schedule
/// them, and the items of these runs.
constexpr std::uint64_t kBytesPerRegion = 3 * sizeof(plan::Runs);
/// Plan memory for a range of blocks, on every rank: for the range as it arrives, and in the extent map.
constexpr std::uint64_t kBytesPerRange = 3 * sizeof(plan::FileRange);

/// A plan gets no more batches after a rank wants bytes of more files than this, and than its first batch wants:
/// the files stay open, the limit of a process is often 1024, and `direct` opens each file twice.
constexpr std::size_t kMostFiles = 256;

/// Largest number of boxes whose tensors are held as objects at once. A rank may want 100,000 boxes:
/// all their tensors would take more memory than the plan.
constexpr std::size_t kPickedAtOnce = 4096;

/// Some boxes, and their tensors as objects. `stored` has all files, and each of these tensors once.
struct PickedTensors {
  format::StoredCheckpoint stored;
  std::vector<plan::MemoryBox> boxes;  ///< MemoryBox::tensor is a number in `stored`
};

PickedTensors pick(const opening::OpenCheckpoint& checkpoint, std::vector<plan::MemoryBox> boxes) {
  std::unordered_map<std::uint32_t, std::uint32_t> known;
  std::vector<std::uint32_t> numbers;
  for (plan::MemoryBox& box : boxes) {
    const auto [at, is_new] = known.try_emplace(box.tensor, static_cast<std::uint32_t>(numbers.size()));
    if (is_new) numbers.push_back(box.tensor);
    box.tensor = at->second;
  }
  return {checkpoint.stored.picked(numbers), std::move(boxes)};
}

/// Calls visit(picked, first) for all boxes, some at a time; `first`: number of the first box in `picked`.
template <class Visit>
void for_each_picked(const opening::OpenCheckpoint& checkpoint, std::span<const plan::MemoryBox> boxes,
                     const Visit& visit) {
  for (std::size_t first = 0; first < boxes.size(); first += kPickedAtOnce) {
    const auto some = boxes.subspan(first, std::min(kPickedAtOnce, boxes.size() - first));
    visit(pick(checkpoint, {some.begin(), some.end()}), first);
  }
}

/// Appends `runs`, with `first` added to each Runs::local.
void append(std::vector<plan::Runs>& all, std::vector<plan::Runs> runs, std::size_t first) {
  for (plan::Runs& one : runs) {
    one.local = base::narrow<std::uint32_t>(first + one.local, "number of memory boxes");
    all.push_back(one);
  }
}

}  // namespace

WantedBlocks::WantedBlocks(const opening::OpenCheckpoint& checkpoint, std::uint64_t block_bytes, std::uint64_t ranks)
    : stored_(checkpoint.stored),
      block_bytes_(block_bytes),
      ranks_(ranks),
      sizes_(file_sizes(stored_.files_alone())),
      is_wanted_(sizes_.size()) {}

void WantedBlocks::add(std::span<const plan::MemoryBox> boxes) {
  Ranges ranges;
  plan::Seeker seeker(stored_.tensors);
  for (const plan::MemoryBox& want : boxes) {
    const format::StoredTensor tensor = seeker.at(want.tensor).stored();
    codes::check_planned(want, tensor.name, tensor.dtype, tensor.shape);
    has_device_memory_ = has_device_memory_ || plan::is_on_device(want);
    for (const auto& stored : tensor.boxes) {
      const auto region = shard::intersect(want.box, stored.box);
      if (!region) continue;
      ranges.push_back(plan::file_span(tensor.dtype, stored, *region));
      plan_bytes_ += kBytesPerRegion;
    }
  }
  batches_.push_back(merged(std::move(ranges)));
  for (const plan::FileRange& range : batches_.back()) {
    files_ += is_wanted_[range.file] ? 0 : 1;
    is_wanted_[range.file] = true;
  }
  if (batches_.size() == 1) most_files_ = std::max(kMostFiles, files_);
  plan_bytes_ += kBytesPerRange * ranks_ * batches_.back().size();
}

Ranges WantedBlocks::merged(Ranges ranges) const {
  return plan::widen_to_blocks(std::move(ranges), sizes_, block_bytes_);
}

std::vector<std::uint64_t> RangesOfRanks::count(std::span<const Ranges> batches) {
  std::vector<std::uint64_t> counts;
  for (const Ranges& ranges : batches) counts.push_back(ranges.size());
  return counts;
}

plan::BlockSet RangesOfRanks::blocks(const Ranges& ranges) const {
  plan::BlockSet blocks(grid_);
  for (const plan::FileRange& range : ranges) blocks.insert(range);
  return blocks;
}

base::Bytes RangesOfRanks::pack(std::vector<Ranges>& batches) const {
  base::ByteWriter out;
  for (std::size_t batch = 0; batch < batches.size(); ++batch) {
    if (is_dense(batch)) continue;
    out.u64(batches[batch].size());
    for (const plan::FileRange& range : std::exchange(batches[batch], {})) {
      out.u64(range.file);
      out.u64(range.begin);
      out.u64(range.end);
    }
  }
  return out.take();
}

void RangesOfRanks::join(std::span<const base::Bytes> packed, const WantedBlocks& wanted,
                         std::vector<Ranges>& batches) const {
  std::vector<base::ByteReader> readers(packed.begin(), packed.end());
  for (std::size_t batch = 0; batch < batches.size(); ++batch) {
    if (is_dense(batch)) continue;
    Ranges ranges;
    for (base::ByteReader& in : readers) {
      for (std::uint64_t left = in.u64(); left > 0; --left) {
        const auto file = static_cast<std::uint32_t>(in.u64());
        const std::uint64_t begin = in.u64();
        ranges.push_back({file, begin, in.u64()});
      }
    }
    batches[batch] = wanted.merged(std::move(ranges));
  }
}

namespace {

/// Collective: replaces this rank's ranges in `batches` with the ranges of all ranks.
void join_ranks(comm::Communicator& communicator, const plan::BlockGrid& grid, const WantedBlocks& wanted,
                std::vector<Ranges>& batches) {
  std::vector<std::uint64_t> counts;
  comm::agree(communicator, "plan the load", [&] { counts = RangesOfRanks::count(batches); });
  communicator.all_reduce(counts, comm::ReduceOp::kSum);
  const RangesOfRanks all(grid, std::move(counts));
  for (std::size_t batch = 0; batch < batches.size(); ++batch) {
    if (!all.is_dense(batch)) continue;
    std::optional<plan::BlockSet> blocks;
    comm::agree(communicator, "plan the load", [&] { blocks.emplace(all.blocks(batches[batch])); });
    communicator.all_reduce(blocks->words(), comm::ReduceOp::kOr);
    comm::agree(communicator, "plan the load", [&] { batches[batch] = blocks->ranges(); });
  }
  base::Bytes mine;
  comm::agree(communicator, "plan the load", [&] { mine = all.pack(batches); });
  const std::vector<base::Bytes> packed = communicator.all_gather(mine);
  comm::agree(communicator, "plan the load", [&] { all.join(packed, wanted, batches); });
}

std::size_t blocks_of(const Ranges& ranges, const plan::BlockGrid& grid) {
  std::size_t blocks = 0;
  for (const plan::FileRange& range : ranges) {
    blocks += grid.block_of(range.file, range.end - 1) + 1 - grid.block_of(range.file, range.begin);
  }
  return blocks;
}

/// Collective: plans the reads of a batch that bypass the windows, and removes the blocks of these reads from `ranges`.
BypassRead make_bypass(comm::Communicator& communicator, const opening::OpenCheckpoint& checkpoint,
                       const plan::BlockGrid& grid, const Wanted& wanted, std::uint64_t batch, Ranges& ranges) {
  BypassRead bypass;
  comm::agree(communicator, "plan the load", [&] {
    const Boxes made = wanted.boxes(batch);
    const std::span<const plan::MemoryBox> boxes = made;
    std::vector<plan::Runs> regions;
    regions.reserve(boxes.size());
    for_each_picked(checkpoint, boxes, [&](const PickedTensors& picked, std::size_t first) {
      const auto pieces = plan::whole_pieces(communicator.rank(), picked.boxes);
      append(regions, plan::regions_of_memory(pieces, picked.boxes, picked.stored), first);
    });
    bypass.runs = io::BypassRuns(std::move(regions));
  });
  const plan::BlockSet tiled = io::keep_tiled_blocks(communicator, grid, bypass.runs);
  comm::agree(communicator, "plan the load", [&] {
    bypass.ranges = tiled.ranges();
    plan::BlockSet left(grid);
    for (const plan::FileRange& range : ranges) left.insert(range);
    left.remove(tiled);
    ranges = left.ranges();
  });
  return bypass;
}

/// Blocks of `ranges` that are not in `others`; both are ranges of whole blocks, ascending.
Ranges without(const Ranges& ranges, const Ranges& others) {
  Ranges left;
  auto other = others.begin();
  for (plan::FileRange range : ranges) {
    const auto is_before = [&](const plan::FileRange& o) {
      return o.file < range.file || (o.file == range.file && o.end <= range.begin);
    };
    while (other != others.end() && is_before(*other)) ++other;
    for (auto at = other; at != others.end() && at->file == range.file && at->begin < range.end; ++at) {
      if (range.begin < at->begin) left.push_back({range.file, range.begin, at->begin});
      range.begin = std::min(at->end, range.end);
    }
    if (range.begin < range.end) left.push_back(range);
  }
  return left;
}

std::uint64_t bytes_of(const PickedTensors& picked) {
  std::uint64_t bytes = 0;
  for (const plan::MemoryBox& box : picked.boxes) {
    bytes += shard::elements_of(box.box) * bits_of(picked.stored.tensors[box.tensor].dtype) / 8;
  }
  return bytes;
}

/// Throws kInternal if the windows do not bring exactly `bytes` bytes, the number of wanted bytes.
void require_all(std::uint64_t bytes, std::span<const plan::Runs> own, const plan::ExtentMap& own_extents,
                 std::span<const plan::Runs> early, const plan::ExtentMap& early_extents) {
  std::uint64_t planned = 0;
  const auto add = [&](std::span<const plan::Runs> all, const plan::ExtentMap& extents) {
    for (const plan::Runs& runs : all) {
      for_each_extent_of(runs, extents, [&](std::uint64_t begin, std::uint64_t end) {
        planned += runs.bytes_before(end) - runs.bytes_before(begin);
      });
    }
  };
  add(own, own_extents);
  add(early, early_extents);
  if (planned == bytes) return;
  throw base::internal_error("of " + std::to_string(bytes) + " bytes that are wanted of a batch, windows hold " +
                             std::to_string(planned));
}

/// Collective: fitted_to(). If there are several batches, a rank's share of a batch is usually one window, or slightly
/// more: then the windows are enlarged, if the budget has room, so that each batch takes one round.
MemorySplit fitted(comm::Communicator& communicator, const MemorySplit& budget, plan::ExtentMaps extents) {
  MemorySplit split = budget.fitted_to(extents);
  if (extents.size() == 1 || split.window_bytes != budget.window_bytes) return split;
  const std::uint64_t most = budget.most_window_bytes;
  std::uint64_t largest = 0;
  comm::agree(communicator, "plan the load", [&] {
    for (std::size_t batch = 0; batch < extents.size(); ++batch) {
      const plan::ExtentMap& map = extents[batch];
      const auto share = plan::cut_windows(map.of(communicator.rank()), most, map.block_bytes());
      largest = std::max(largest, share.size() > 1 ? most + 1 : largest_buffer(share));
    }
  });
  largest = base::round_up(communicator.max(largest), extents[0].block_bytes());
  if (largest <= most) split.window_bytes = std::max(split.window_bytes, largest);
  return split;
}

}  // namespace

ReadPlan make_read_plan(comm::Communicator& communicator, const opening::OpenCheckpoint& checkpoint,
                        const Wanted& wanted, std::uint64_t first, const ReadPlanOptions& how) {
  const std::uint64_t block_bytes = checkpoint.blocks ? checkpoint.blocks->block_bytes() : format::kDefaultBlockBytes;
  ReadPlan plan;
  plan.first = first;
  plan.device = &how.device;
  std::optional<plan::BlockGrid> grid;
  std::optional<WantedBlocks> blocks;
  comm::agree(communicator, "plan the load", [&] {
    os::fault_memory("memory.load");
    if (first >= wanted.batches) throw base::internal_error("a batch is loaded that nobody announced");
    plan.budget = split_budget(how.memory_budget_bytes, block_bytes, how.choice);
    grid.emplace(file_sizes(checkpoint.stored.files_alone()), block_bytes);
    blocks.emplace(checkpoint, block_bytes, static_cast<std::uint64_t>(communicator.size()));
    const std::uint64_t most_bytes = std::max(how.memory_budget_bytes / kPlanParts, kLeastPlanBytes);
    for (plan.end = first; plan.end < wanted.batches; ++plan.end) {
      if (plan.end != first && blocks->is_full(most_bytes)) break;
      blocks->add(wanted.boxes(plan.end));
    }
    if (blocks->has_device_memory()) plan.budget = plan.budget.with_device_copies(how.device.bytes());
  });
  plan.end = communicator.min(plan.end);
  std::vector<Ranges>& batches = blocks->batches();
  batches.resize(plan.end - first);
  join_ranks(communicator, *grid, *blocks, batches);
  if (std::ranges::all_of(batches, [](const Ranges& ranges) { return ranges.empty(); })) return plan;

  const bool is_by_rank = !checkpoint.reader_of_file.empty();
  const bool can_bypass = how.choice.bypass && !is_by_rank;  // a bypass lets each rank read from any file
  comm::agree(communicator, "plan the load", [&] { plan.bypass.resize(batches.size()); });
  for (std::size_t batch = 0; can_bypass && batch < batches.size(); ++batch) {
    if (batches[batch].empty() || blocks_of(batches[batch], *grid) < grid->blocks() / kBypassParts) continue;
    plan.bypass[batch] = make_bypass(communicator, checkpoint, *grid, wanted, first + batch, batches[batch]);
  }
  plan.comes_early = batches.size() > 1 && !how.choice.bypass &&  // for files in memory, reading is a copy anyway
                     communicator.max(blocks->has_device_memory() ? 1 : 0) == 0;
  for (std::size_t batch = 1; plan.comes_early && batch < batches.size(); ++batch) {
    comm::agree(communicator, "plan the load", [&] { batches[batch] = without(batches[batch], batches[batch - 1]); });
  }
  std::vector<std::uint32_t> groups;
  comm::agree(communicator, "plan the load", [&] {
    if (checkpoint.group_of_file.size() != checkpoint.stored.files.size()) {
      throw base::internal_error("files of a checkpoint that is read have no groups");
    }
    groups = checkpoint.group_of_file;
  });
  Aggregators aggregators = choose_aggregators(communicator, std::move(groups), how.choice, Access::kRead);
  if (is_by_rank) {
    comm::agree(communicator, "plan the load", [&] {
      plan::Assignment readers;
      readers.aggregator_of_file = checkpoint.reader_of_file;
      aggregators = {communicator.size(), std::make_shared<const plan::Assignment>(std::move(readers))};
    });
  }
  comm::agree(communicator, "assign the bytes to the ranks", [&] {
    plan.extents.reserve(batches.size());
    for (Ranges& ranges : batches) {
      plan.extents.emplace_back(std::exchange(ranges, {}), aggregators.count, block_bytes, aggregators.assignment);
    }
  });
  const plan::ExtentMaps extents(plan.extents);
  plan.budget = fitted(communicator, plan.budget, extents);
  plan.rounds = io::cut_rounds(communicator, extents, plan.budget.window_bytes);
  plan.buffers = how.store.get(communicator, largest_buffer(plan.rounds.windows), plan.budget.bounce_bytes);
  return plan;
}

ReadTransfers transfers_of_rank(int rank, const opening::OpenCheckpoint& checkpoint, const Wanted& wanted,
                                const ReadPlan& plan) {
  ReadTransfers transfers;
  transfers.of_windows.resize(plan.extents.size());
  transfers.early.resize(plan.extents.size());
  std::size_t before = 0;  // number of boxes of the previous batch
  for (std::size_t number = 0; number < plan.extents.size(); ++number) {
    std::vector<plan::Runs>& own = transfers.of_windows[number];
    std::vector<plan::Runs>& early = transfers.early[number];
    const bool is_all = !plan.bypass[number] && !plan.comes_early;
    const auto outside = is_all ? plan::OutsideExtents::kIsError : plan::OutsideExtents::kStays;
    const Boxes made = wanted.boxes(plan.first + number);
    const std::span<const plan::MemoryBox> boxes = made;
    std::uint64_t bytes = 0;
    own.reserve(boxes.size());
    for_each_picked(checkpoint, boxes, [&](const PickedTensors& picked, std::size_t first) {
      const auto pieces = plan::whole_pieces(rank, picked.boxes);
      const auto add = [&](const plan::ExtentMap& extents, std::vector<plan::Runs>& out) {
        append(out, plan::transfers_of_memory(pieces, picked.boxes, picked.stored, extents, outside), first);
      };
      add(plan.extents[number], own);
      if (plan.comes_early && number != 0) add(plan.extents[number - 1], early);
      bytes += bytes_of(picked);
    });
    if (boxes.size() > kPickedAtOnce) {
      plan::sort_transfers(own);
      plan::sort_transfers(early);
    }
    if (plan.comes_early) {
      require_all(bytes, own, plan.extents[number], early, plan.extents[number == 0 ? 0 : number - 1]);
      if (number != 0) append(transfers.of_windows[number - 1], early, before);
    }
    before = boxes.size();
  }
  return transfers;
}

ReadTransfers make_transfers(comm::Communicator& communicator, const opening::OpenCheckpoint& checkpoint,
                             const Wanted& wanted, const ReadPlan& plan) {
  ReadTransfers transfers;
  comm::agree(communicator, "plan the load",
              [&] { transfers = transfers_of_rank(communicator.rank(), checkpoint, wanted, plan); });
  return transfers;
}

}  // namespace cairn::checkpoint
