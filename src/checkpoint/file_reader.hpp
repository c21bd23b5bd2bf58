// Reads the windows of a load, several rounds ahead of the round that is checked and scattered: the mirror of
// file_writer.hpp.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/call.hpp"
#include "comm/communicator.hpp"
#include "io/bypass_runs.hpp"
#include "io/engine.hpp"
#include "io/window_pool.hpp"
#include "opening/open.hpp"
#include "opening/written_blocks.hpp"
#include "plan/extents.hpp"

namespace cairn::checkpoint {

struct ReadJob {
  const opening::OpenCheckpoint& checkpoint;
  plan::ExtentMaps extents;               ///< extents of each batch
  std::span<const plan::Window> windows;  ///< windows of this rank, by round
  std::uint64_t rounds;                   ///< number of rounds, the same on all ranks
  io::WindowPool& buffers;                ///< buffers of the windows
  std::uint64_t bypass_bytes = 0;         ///< bytes read without a window, by all ranks in all batches
};

/// Bytes that are read without a window.
struct BypassRead {
  io::BypassRuns runs;                  ///< runs of this rank
  std::vector<plan::FileRange> ranges;  ///< ranges of all ranks: whole blocks
};

/// Collective calls throw the same Error on all ranks. As with FileWriter, a rank that unwinds alone does not call
/// Engine::close(), which is collective.
class FileReader {
 public:
  /// Opens nothing. The objects to which `job` refers must outlive this object.
  FileReader(comm::Communicator& communicator, const ReadJob& job)
      : communicator_(communicator),
        job_(job),
        extent_bytes_(job.extents.total_bytes()),
        total_bytes_(extent_bytes_ + job.bypass_bytes) {}

  /// Collective. Each rank opens the files of its extents in all batches, once.
  void open(const std::string& engine, const io::Hints& hints);

  /// Collective. Reads the blocks tiled by long runs directly into `memory`, the memory boxes of the runs, and compares
  /// the blocks with `written`; phases "read" and "verify". Throws Error(kIntegrity) for a block that differs.
  void read_bypass(const BypassRead& bypass, const opening::WrittenBlocks& written, const io::BypassMemory& memory,
                   Call& call);

  /// Collective, before the first round: begins to read the windows of the first rounds.
  void read_ahead();
  /// Collective, called round by round; reports progress. Returns this rank's window of the round, if any, once it has
  /// been read. The previous round must have been scattered: its buffer gets another window, whose read begins here.
  io::WindowBuffer wait_for_window(std::uint64_t round);

  /// Collective.
  void close();

  /// Rank-local; call after open(). Returns the same on all ranks.
  [[nodiscard]] io::Hints hints() const { return engine_->hints(); }

  /// Collective, after a comm::AgreedError: closes the files, if they were opened.
  void close_after_error() noexcept { io::close_after_error(engine_.get()); }

 private:
  void begin(std::uint64_t round);

  comm::Communicator& communicator_;
  ReadJob job_;
  std::vector<io::EngineFile> files_;
  std::uint64_t extent_bytes_;  ///< bytes in the extents of all batches
  std::uint64_t total_bytes_;   ///< extent_bytes_ plus ReadJob::bypass_bytes
  std::uint64_t done_bytes_ = 0;
  std::optional<io::BypassFiles> bypass_files_;  ///< opens files when bypass runs need them
  std::vector<io::ReadOp> ops_;                  ///< reads of one round; has room for the largest window
  std::unique_ptr<io::Engine> engine_;
};

}  // namespace cairn::checkpoint
