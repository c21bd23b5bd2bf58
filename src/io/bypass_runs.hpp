// Straight runs: long runs of a rank's memory that go to a file, or come out of it, as they lie, without a window.
//
// For file systems in memory. Bytes go straight by whole cells of the checksum grid: a cell does when the
// long runs of all ranks tile it, each byte once, and nobody has short runs in it. So whoever moves a piece of it can
// add the piece's checksum to those of the others, and what is left for the windows are whole cells too.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "comm/communicator.hpp"
#include "io/engine.hpp"
#include "plan/extents.hpp"
#include "plan/pieces.hpp"
#include "plan/runs.hpp"

namespace cairn::io {

/// Of one rank.
class StraightRuns {
 public:
  /// Shorter runs are not worth a call of the kernel each, unless a region has no other.
  static constexpr std::uint64_t kShortestBytes = 64ULL << 10;

  StraightRuns() = default;
  /// The long ones of a rank's runs (plan::regions_of_memory), each of which is there once: whose extents it lies in
  /// does not matter.
  explicit StraightRuns(std::span<const plan::Runs> regions);

  /// Of each cell the sum, modulo 2^64, of f(end) - f(begin) over the runs in it, for a function f of file offsets that
  /// looks random, and 1 for each region of short runs that reaches into it. Long runs that tile a cell add up to
  /// f(end) - f(begin) of the cell, since what lies between cancels; anything else does with a probability of 2^-64.
  [[nodiscard]] std::vector<std::uint64_t> fingerprints(const plan::CellGrid& grid) const;
  /// What bytes have that are tiled, each once: a cell, or a run in it.
  static std::uint64_t fingerprint_of_tiled(const plan::FileRange& bytes);

  /// Leaves out what lies in other cells.
  void keep(const plan::CellSet& cells);

  [[nodiscard]] bool empty() const { return slices_.empty(); }

  /// Walks the runs of one file, ascending by region and file offset, in pieces. The StraightRuns must outlive it.
  class Walk {
   public:
    [[nodiscard]] std::uint32_t file() const { return file_; }
    [[nodiscard]] bool done() const { return at_ == end_; }
    /// Memory box of the next piece. Requires, as next() does: not done.
    [[nodiscard]] std::uint32_t local() const { return runs_->runs_[runs_->slices_[at_].runs].local; }
    plan::Run next(std::uint64_t most_bytes);

   private:
    friend class StraightRuns;
    const StraightRuns* runs_ = nullptr;
    std::uint32_t file_ = 0;
    std::size_t at_ = 0;  ///< slice
    std::size_t end_ = 0;
    std::uint64_t walked_bytes_ = 0;  ///< of it
  };
  /// One for each file with runs.
  [[nodiscard]] std::vector<Walk> walks() const;

 private:
  std::vector<plan::Runs> runs_;         ///< ascending by (file, place in the file)
  std::vector<plan::Slice> slices_;      ///< of them, ascending
  std::vector<plan::FileRange> others_;  ///< where regions of short runs lie
};

/// Collective. The cells that the long runs of all ranks tile; `runs` keeps what lies in them.
plan::CellSet keep_tiled_cells(comm::Communicator& communicator, const plan::CellGrid& grid, StraightRuns& runs);

// Straight runs (bypass_runs.hpp) to and from files in memory: one copy, made by the rank whose memory it is.
//
// Through a window a byte is copied twice, and one rank makes the kernel's copies of a whole file. Here the kernel
// copies out of the rank's memory, or into it. It lets one writer at a time into a file of tmpfs, and others that wait
// spin; so ranks take turns with a lock of the file (flock), go on with another file while one is taken, and sleep when
// all are.

/// A piece of a file that was read, or is about to be written, while it is in the cache.
using PieceSeen = std::function<void(std::uint32_t file, std::uint64_t offset, std::span<const std::byte> data)>;

/// Collective. Writes the runs of this rank to files that exist at their size, syncs and closes them. `memory`: this
/// rank's boxes, by Runs::local, on the host. `seen` is called once with each piece. Throws the same Error on all
/// ranks.
void write_straight(comm::Communicator& communicator, std::span<const EngineFile> files, const StraightRuns& runs,
                    std::span<const plan::MemoryBox> memory, const PieceSeen& seen);

/// Collective. Reads the runs of this rank.
void read_straight(comm::Communicator& communicator, std::span<const EngineFile> files, const StraightRuns& runs,
                   std::span<const plan::MemoryBox> memory, const PieceSeen& seen);

}  // namespace cairn::io
