// Bypass runs: long runs of a rank's memory that go to a file, or come out of it, as they lie, without a window.
//
// For file systems in memory, and for snapshots on their way to a disk. Whole blocks of checksums bypass the windows: a block does when the
// long runs of all ranks tile it, each byte once, and nobody has short runs in it. So whoever moves a piece of it can
// add the piece's checksum to those of the others, and what is left for the windows are whole blocks too.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "comm/communicator.hpp"
#include "io/device_copies.hpp"
#include "io/engine.hpp"
#include "os/file.hpp"
#include "plan/extents.hpp"
#include "plan/pieces.hpp"
#include "plan/runs.hpp"

namespace cairn::io {

enum class BypassWay {
  kCopied,  ///< to and from files in memory: the kernel copies
  kDirect,  ///< from memory that lies in its pages as the file does in its own, to storage by O_DIRECT
};

/// Where byte 0 of a memory box would be in a file, modulo 2^64.
struct BoxInFile {
  std::uint32_t file = 0;
  std::uint64_t offset = 0;
};

/// Of one rank.
class BypassRuns {
 public:
  /// kCopied: shorter runs are not worth a call of the kernel each, unless a region has no other.
  static constexpr std::uint64_t kShortestBytes = 64ULL << 10;
  /// kDirect: of shorter runs too much lies in pages that are not theirs alone, and goes through the page cache.
  static constexpr std::uint64_t kShortestDirectBytes = 1ULL << 20;
  /// kDirect: offsets in a file and addresses are the same modulo this, a page.
  static constexpr std::uint64_t kPageBytes = 4096;

  BypassRuns() = default;
  /// The long ones of a rank's runs (plan::regions_of_memory), each of which is there once: whose extents it lies in
  /// does not matter.
  explicit BypassRuns(std::vector<plan::Runs> regions, BypassWay way = BypassWay::kCopied);

  /// Of each block the sum, modulo 2^64, of f(end) - f(begin) over the runs in it, for a function f of file offsets
  /// that looks random, and 1 for each region of short runs that reaches into it. Long runs that tile a block add up to
  /// f(end) - f(begin) of the block, since what lies between cancels; anything else does with a probability of 2^-64.
  [[nodiscard]] std::vector<std::uint64_t> fingerprints(const plan::BlockGrid& grid) const;
  /// What bytes have that are tiled, each once: a block, or a run in it.
  static std::uint64_t fingerprint_of_tiled(const plan::FileRange& bytes);

  /// Leaves out what lies in other blocks.
  void keep(const plan::BlockSet& blocks);

  [[nodiscard]] bool empty() const { return slices_.empty(); }
  [[nodiscard]] std::uint64_t bytes() const;
  /// Widens the spans, by memory box, by what the runs touch.
  void cover_memory(std::vector<plan::MemorySpan>& spans) const;

  /// Ascending, each once.
  [[nodiscard]] std::vector<std::uint32_t> files() const;
  /// Of each memory box, by its number: where its runs want it, if it has any. With kDirect all of them agree modulo
  /// kPageBytes.
  [[nodiscard]] std::vector<std::optional<BoxInFile>> boxes_in_files() const;
  /// All runs, ascending by (file, offset), of at most `most_bytes`; neighbours in file and memory are one.
  [[nodiscard]] std::vector<WriteOp> write_ops(std::span<const plan::MemoryBox> memory, std::uint64_t most_bytes) const;

  /// Walks the runs of one file, ascending by region and file offset, in pieces. The BypassRuns must outlive it.
  class Walk {
   public:
    [[nodiscard]] std::uint32_t file() const { return file_; }
    [[nodiscard]] bool done() const { return at_ == end_; }
    /// Memory box of the next piece. Requires, as next() does: not done.
    [[nodiscard]] std::uint32_t local() const { return runs_->runs_[runs_->slices_[at_].runs].local; }
    plan::Run next(std::uint64_t most_bytes);

   private:
    friend class BypassRuns;
    const BypassRuns* runs_ = nullptr;
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

/// Collective. The blocks that the long runs of all ranks tile; `runs` keeps what lies in them.
plan::BlockSet keep_tiled_blocks(comm::Communicator& communicator, const plan::BlockGrid& grid, BypassRuns& runs);

// Bypass runs (bypass_runs.hpp) to and from files in memory: one copy, made by the rank whose memory it is.
//
// Through a window a byte is copied twice, and one rank makes the kernel's copies of a whole file. Here the kernel
// copies out of the rank's memory, or into it. It lets one writer at a time into a file of tmpfs, and others that wait
// spin; so ranks take turns with a lock of the file (flock), go on with another file while one is taken, and sleep when
// all are.

/// This rank's boxes, by Runs::local. `device` is for those in device memory, where there are any.
struct BypassMemory {
  std::span<const plan::MemoryBox> boxes;
  DeviceCopies* device = nullptr;
};

/// A piece of a file that was read, or is about to be written, while it is in the cache.
using PieceSeen = std::function<void(std::uint32_t file, std::uint64_t offset, std::span<const std::byte> data)>;

/// Collective. Writes the runs of this rank to files that exist at their size, syncs and closes them. `seen` is called
/// once with each piece. Throws the same Error on all ranks.
void write_bypass(comm::Communicator& communicator, std::span<const EngineFile> files, const BypassRuns& runs,
                  const BypassMemory& memory, const PieceSeen& seen);

/// Files of one rank that runs are read from: each is opened when the first of them comes, and stays open.
class BypassFiles {
 public:
  /// `files` must outlive the object.
  explicit BypassFiles(std::span<const EngineFile> files);
  /// Until the next call: only so many are open at a time.
  [[nodiscard]] const os::File& of(std::uint32_t file);

 private:
  std::span<const EngineFile> files_;
  std::map<std::uint32_t, os::File> open_;
  std::size_t most_;
};

/// Collective. Reads the runs of this rank.
void read_bypass(comm::Communicator& communicator, BypassFiles& files, const BypassRuns& runs,
                 const BypassMemory& memory, const PieceSeen& seen);

}  // namespace cairn::io
