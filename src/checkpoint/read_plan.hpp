// The plan of a load: the blocks that any rank wants, their readers, and their receivers (for saves: save_plan.hpp).
//
// Batches are planned together if their plan fits into a share of the memory budget. A block that two batches want
// is read twice, except by consecutive batches of a plan with comes_early: there the first batch's windows also bring
// the second batch's bytes, into separate memory. In a conversion, consecutive batches often share a block.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/bytes.hpp"
#include "checkpoint/engine_choice.hpp"
#include "checkpoint/file_reader.hpp"
#include "checkpoint/reader.hpp"
#include "codes/decode_pieces.hpp"
#include "comm/communicator.hpp"
#include "io/exchange.hpp"
#include "io/window_pool.hpp"
#include "opening/open.hpp"
#include "plan/extents.hpp"
#include "plan/runs.hpp"

namespace cairn::checkpoint {

/// The plan of the batches from `first` to `end` - 1.
struct ReadPlan {
  std::uint64_t first = 0;
  std::uint64_t end = 0;
  std::vector<plan::ExtentMap> extents;           ///< extents of each batch
  std::vector<std::optional<BypassRead>> bypass;  ///< bytes of each batch that bypass the windows
  bool comes_early = false;  ///< bytes of a batch can come with blocks that the previous batch reads
  io::Rounds rounds;
  MemorySplit budget;
  std::shared_ptr<io::WindowPool> buffers;  ///< null: no rank wants a byte
  io::DeviceCopies* device = nullptr;       ///< as in ReadPlanOptions
};

struct ReadPlanOptions {
  std::uint64_t memory_budget_bytes;
  const EngineChoice& choice;
  io::WindowStore& store;
  io::DeviceCopies& device;  ///< must outlive the plan
};

/// Collective: plans batches from `first` on, at least one. Throws kInternal for a box that does not fit its tensor, or
/// its memory if it has memory, and kUsage for a budget that is too small.
ReadPlan make_read_plan(comm::Communicator& communicator, const opening::OpenCheckpoint& checkpoint,
                        const Wanted& wanted, std::uint64_t first, const ReadPlanOptions& how);

/// One rank's transfers of each batch of a plan, for the exchange that scatters the windows.
struct ReadTransfers {
  std::vector<std::vector<plan::Runs>> of_windows;  ///< Runs::local counts the batch's boxes, then the next batch's
  std::vector<std::vector<plan::Runs>> early;       ///< transfers that come with the windows of the previous batch;
                                                    ///< Runs::local counts the boxes of this batch
};

/// Collective: transfers_of_rank() of this rank.
ReadTransfers make_transfers(comm::Communicator& communicator, const opening::OpenCheckpoint& checkpoint,
                             const Wanted& wanted, const ReadPlan& plan);

/// Calls visit(begin, end) for each part of [file_begin, file_end()) of `runs` in an extent of their aggregator.
template <class Visit>
void for_each_extent_of(const plan::Runs& runs, const plan::ExtentMap& extents, const Visit& visit) {
  for (const plan::Extent& extent : extents.covering(runs.file, runs.file_begin, runs.file_end())) {
    if (extent.rank == runs.file_rank) visit(extent.begin, extent.end);
  }
}

// Rank-local steps, which `cairn plan` also runs: parts of make_read_plan() and all of make_transfers().

using Ranges = std::vector<plan::FileRange>;

/// The whole blocks that one rank wants for some batches.
class WantedBlocks {
 public:
  WantedBlocks(const opening::OpenCheckpoint& checkpoint, std::uint64_t block_bytes, std::uint64_t ranks);

  /// Adds a batch. Throws Error(kInternal) for a box that does not fit its tensor, or its memory if it has memory.
  void add(std::span<const plan::MemoryBox> boxes);
  /// The ranges, of one or several ranks, widened to whole blocks and merged.
  [[nodiscard]] Ranges merged(Ranges ranges) const;

  [[nodiscard]] std::vector<Ranges>& batches() { return batches_; }
  /// Whether the plan is full, so that no more batches should be added.
  [[nodiscard]] bool is_full(std::uint64_t most_bytes) const {
    return plan_bytes_ > most_bytes || files_ > most_files_;
  }
  [[nodiscard]] bool has_device_memory() const { return has_device_memory_; }

 private:
  const plan::PackedCheckpoint& stored_;
  std::uint64_t block_bytes_;
  std::uint64_t ranks_;
  std::vector<std::uint64_t> sizes_;
  std::vector<bool> is_wanted_;  ///< by file
  std::size_t files_ = 0;
  std::size_t most_files_ = 0;
  std::vector<Ranges> batches_;
  std::uint64_t plan_bytes_ = 0;
  bool has_device_memory_ = false;
};

/// Messages with the ranges that ranks want. A batch with many ranges is dense: one bit per block is shorter than its
/// ranges. The ranges of all batches that are not dense are sent together.
class RangesOfRanks {
 public:
  /// Number of ranges of each batch, to be summed over the ranks.
  static std::vector<std::uint64_t> count(std::span<const Ranges> batches);
  /// `counts`: the sums of count() over the ranks. `grid` must outlive the object.
  RangesOfRanks(const plan::BlockGrid& grid, std::vector<std::uint64_t> counts)
      : grid_(grid), counts_(std::move(counts)) {}

  [[nodiscard]] bool is_dense(std::size_t batch) const {
    return counts_[batch] * sizeof(plan::FileRange) > grid_.blocks() / 8;
  }
  /// The blocks of a dense batch, to be combined with the blocks of the other ranks.
  [[nodiscard]] plan::BlockSet blocks(const Ranges& ranges) const;
  /// Moves the batches that are not dense into a message to all ranks.
  [[nodiscard]] base::Bytes pack(std::vector<Ranges>& batches) const;
  /// `packed`: the messages of all ranks. Sets each batch that is not dense to the ranges of all ranks.
  void join(std::span<const base::Bytes> packed, const WantedBlocks& wanted, std::vector<Ranges>& batches) const;

 private:
  const plan::BlockGrid& grid_;
  std::vector<std::uint64_t> counts_;
};

ReadTransfers transfers_of_rank(int rank, const opening::OpenCheckpoint& checkpoint, const Wanted& wanted,
                                const ReadPlan& plan);

}  // namespace cairn::checkpoint
