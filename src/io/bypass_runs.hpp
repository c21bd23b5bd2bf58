// Bypass runs: long runs that are copied between a rank's memory and a file directly, without a window.
//
// Used for file systems in memory, and for snapshots that are written to a disk. A checksum block bypasses the windows
// only as a whole: if the long runs of all ranks tile it, each byte once, and no rank has short runs in it. The
// checksums of its pieces, which different ranks may move, can then be combined, and the windows get whole blocks.
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
  kCopied,  ///< the kernel copies to and from files in memory
  kDirect,  ///< O_DIRECT writes to storage, from memory whose addresses equal the file offsets modulo a page
};

/// A file, and the offset in it at which a memory box begins (modulo 2^64).
struct BoxInFile {
  std::uint32_t file = 0;
  std::uint64_t offset = 0;
};

/// The bypass runs of one rank.
class BypassRuns {
 public:
  /// kCopied: shorter runs are not worth a system call each, unless the region is a single run.
  static constexpr std::uint64_t kShortestBytes = 64ULL << 10;
  /// kDirect: too much of a shorter run would lie in pages shared with other runs, which go through the page cache.
  static constexpr std::uint64_t kShortestDirectBytes = 1ULL << 20;
  /// kDirect: file offsets and addresses are equal modulo this size, a page.
  static constexpr std::uint64_t kPageBytes = 4096;

  BypassRuns() = default;
  /// Keeps the `regions` (plan::regions_of_memory) with long runs; for kDirect, strides must be equal modulo a page.
  explicit BypassRuns(std::vector<plan::Runs> regions, BypassWay way = BypassWay::kCopied);

  /// For each block the sum, modulo 2^64, of f(end) - f(begin) over the runs in it, with a pseudorandom
  /// function f of file offsets, plus 1 for each region of short runs that reaches into it. If long runs tile a block,
  /// the sum over all ranks is f(end) - f(begin) of the block, since the terms in between cancel; otherwise it has this
  /// value with a probability of 2^-64.
  [[nodiscard]] std::vector<std::uint64_t> fingerprints(const plan::BlockGrid& grid) const;
  /// The fingerprint of a range that long runs tile.
  static std::uint64_t fingerprint_of_tiled(const plan::FileRange& bytes);

  /// Drops the parts of runs that lie outside these blocks.
  void keep(const plan::BlockSet& blocks);

  [[nodiscard]] bool empty() const { return slices_.empty(); }
  [[nodiscard]] std::uint64_t bytes() const;
  /// Widens `spans`, which has one span for each memory box number, to contain the runs.
  void cover_memory(std::vector<plan::MemorySpan>& spans) const;

  /// Files with runs, ascending, each once.
  [[nodiscard]] std::vector<std::uint32_t> files() const;
  /// For each memory box, by number, its place in a file according to its first run; empty for a box without runs. With
  /// kDirect, all runs of a region give the same offset modulo kPageBytes.
  [[nodiscard]] std::vector<std::optional<BoxInFile>> boxes_in_files() const;
  /// All runs as writes of at most `most_bytes`, by (file, offset); runs adjacent in file and memory are joined first.
  [[nodiscard]] std::vector<WriteOp> write_ops(std::span<const plan::MemoryBox> memory, std::uint64_t most_bytes) const;

  /// Walks the runs of one file, ascending by region and file offset, in pieces. The BypassRuns must outlive the walk.
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
    std::size_t at_ = 0;  ///< number of the current slice
    std::size_t end_ = 0;
    std::uint64_t walked_bytes_ = 0;  ///< within that slice
  };
  /// One walk for each file with runs.
  [[nodiscard]] std::vector<Walk> walks() const;

 private:
  std::vector<plan::Runs> runs_;         ///< ascending by (file, offset)
  std::vector<plan::Slice> slices_;      ///< parts of runs_, ascending
  std::vector<plan::FileRange> others_;  ///< file ranges of regions with short runs
};

/// Collective. Returns the blocks that the long runs of all ranks tile; `runs` keeps only its parts in these blocks.
plan::BlockSet keep_tiled_blocks(comm::Communicator& communicator, const plan::BlockGrid& grid, BypassRuns& runs);

// Bypass runs to and from files in memory: one copy, made by the rank that has the memory.
//
// Through a window a byte is copied twice, and the kernel's copies of a whole file are made on one rank. Here the
// kernel copies directly between each rank's memory and the file. The kernel lets one writer at a time into a tmpfs
// file, while the others spin. So ranks take turns with a lock on the file (flock): while a file is locked they
// continue with another file, and they sleep while all files are locked.

/// This rank's boxes, by Runs::local. `device` is needed if boxes lie in device memory.
struct BypassMemory {
  std::span<const plan::MemoryBox> boxes;
  DeviceCopies* device = nullptr;
};

/// Called with each piece of a file, just after the piece was read or just before it is written, so that its bytes are
/// in the processor's cache for both steps.
using PieceSeen = std::function<void(std::uint32_t file, std::uint64_t offset, std::span<const std::byte> data)>;

/// Collective. Writes the runs of this rank to files that already have their full size, then syncs and closes the
/// files. `seen` is called once with each piece. Throws the same Error on all ranks.
void write_bypass(comm::Communicator& communicator, std::span<const EngineFile> files, const BypassRuns& runs,
                  const BypassMemory& memory, const PieceSeen& seen);

/// The files from which one rank reads runs: opened when first read, and all closed at the limit on open files.
class BypassFiles {
 public:
  /// `files` must outlive the object.
  explicit BypassFiles(std::span<const EngineFile> files);
  /// Valid until the next call, which may close the file.
  [[nodiscard]] const os::File& of(std::uint32_t file);

 private:
  std::span<const EngineFile> files_;
  std::map<std::uint32_t, os::File> open_;
  std::size_t most_;
};

/// Collective. Reads the runs of this rank and calls `seen` once with each piece. Throws the same Error on all ranks.
void read_bypass(comm::Communicator& communicator, BypassFiles& files, const BypassRuns& runs,
                 const BypassMemory& memory, const PieceSeen& seen);

}  // namespace cairn::io
