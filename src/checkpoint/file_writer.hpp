// Writes the data files of a layout window by window, and checksums the bytes in memory: the common part of saves,
// conversions and staging files. The steps of FileWriter::write():
//
//   0 digest    with WriteJob::may_be_there: fills the windows with files that may be there already, and digests them;
//               files that are there are not written by the next steps
//   1 open      creates the files
//   2 bypass    writes long runs, if there are any, past the windows
//   3 windows   in each round, for each rank's window:
//      a wait    until storage has the former content of the window's buffer
//      b fill    by the caller, on all ranks together
//      c finish  older rounds: all ranks share their write errors
//      d submit  checksums the window while it is in cache; storage writes it while the next windows are filled
//   4 headers   written last, so that a truncated file never has a valid header
//   5 fsync     then closes the files
//   6 reduce    combines the checksums of all ranks
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/call.hpp"
#include "checkpoint/content_digests.hpp"
#include "checkpoint/non_finite.hpp"
#include "comm/communicator.hpp"
#include "format/blocks.hpp"
#include "io/bypass_runs.hpp"
#include "io/engine.hpp"
#include "io/window_pool.hpp"
#include "plan/extents.hpp"
#include "plan/file_layout.hpp"

namespace cairn::checkpoint {

/// Hooks of a save that runs in the background.
class SaveHooks {
 public:
  virtual ~SaveHooks() = default;
  /// Rank-local, must not throw: blocks until these bytes are in the snapshot. Called only for direct runs, before
  /// round 0.
  virtual void wait_for(std::span<const std::byte> bytes) = 0;
  /// Collective: called before each round and after the last one; for round 0, before kCopied bypass runs. `bytes` came
  /// into this rank's window in the previous round. An error thrown on all ranks ends the save, which leaves no files.
  virtual void before_round(std::uint64_t round, std::uint64_t bytes) = 0;
  /// Collective: called when all data files are on storage, before the commit. Errors as in before_round().
  virtual void before_commit() = 0;
};

struct WriteJob {
  const std::string& engine;
  const io::Hints& hints;
  const std::filesystem::path& directory;  ///< directory of the files
  const plan::FileLayout& layout;
  const plan::ExtentMap& extents;
  std::span<const plan::Window> windows;  ///< this rank's windows
  const io::WindowPool& buffers;          ///< buffers of the windows
  std::uint64_t rounds = 0;               ///< number of rounds, the same on all ranks
  bool has_checksums = true;
  std::optional<io::BypassWay> bypass_way = {};  ///< the same on all ranks; empty: no bypass runs. kDirect needs hooks
  const io::BypassRuns* bypass = nullptr;        ///< runs of this rank
  io::BypassMemory bypass_memory = {};           ///< memory boxes of these runs
  SaveHooks* hooks = nullptr;                    ///< or null
  NonFiniteCounter* counter = nullptr;           ///< null, or gets all bytes when they are checksummed
  ContentDigests* digests = nullptr;             ///< null, or gets the bytes of its files; needs checksums, no bypass
  std::vector<bool> may_be_there = {};           ///< by file, the same on all ranks: those of step 0; empty: none
  /// Collective, called when the digests of `may_be_there` are combined. Returns by file whether it is in the directory
  /// now, so that it is not written.
  std::function<std::vector<bool>()> take = {};
};

/// Collective: fills this rank's window except for header bytes, which are not used, or takes part without a window.
/// Returns the number of bytes put into the window; unless that is all but the header bytes, write() throws kInternal.
using FillWindow = std::function<std::uint64_t(std::uint64_t round, const io::WindowBuffer& window)>;

class FileWriter {
 public:
  /// Opens nothing. The objects to which `job` refers must outlive this object.
  FileWriter(comm::Communicator& communicator, const WriteJob& job) : communicator_(communicator), job_(job) {}

  /// Collective, once. Throws the same Error on all ranks, after closing the files. A rank that unwinds alone does not
  /// call Engine::close(), which is collective. `fill` runs in phase "exchange". Returns the checksums of all blocks,
  /// the same on all ranks; an empty table without WriteJob::has_checksums.
  format::BlockTable write(const FillWindow& fill, Call& call);

  /// Rank-local; call after write(). Returns the same on all ranks.
  [[nodiscard]] io::Hints hints() const { return engine_->hints(); }

 private:
  /// A window that did not get the expected bytes.
  struct WrongWindow {
    std::uint64_t round = 0;
    std::uint64_t arrived_bytes = 0;
    std::uint64_t expected_bytes = 0;
  };
  void find_what_is_there(const FillWindow& fill, Call& call);
  /// Collective: by round, whether any rank's window has bytes of a file for which `is_wanted` is set.
  [[nodiscard]] std::vector<bool> rounds_with(const std::vector<bool>& is_wanted) const;
  void note_arrival(std::uint64_t round, std::uint64_t arrived_bytes);
  void open();
  void write_past_windows(Call& call);
  void write_bypass(Call& call);
  void begin_direct(Call& call);
  void checksum_direct(Call& call);
  void write_windows(const FillWindow& fill, Call& call);
  void submit(std::uint64_t round, const io::WindowBuffer& window, std::uint64_t arrived_bytes, Call& call);
  void write_headers(Call& call);
  void sync_and_close();
  format::BlockTable reduce_checksums(Call& call);
  void add_checksums(std::span<const io::WriteOp> ops, Call& call);
  void add_checksum(std::uint32_t file, std::uint64_t offset, std::span<const std::byte> data);
  void keep_ops(const std::vector<bool>& is_wanted, std::vector<io::WriteOp>& ops) const;
  /// Bytes of all ranks that are in no extent.
  [[nodiscard]] std::uint64_t bypass_bytes() const { return total_bytes_ - job_.extents.total_bytes(); }

  comm::Communicator& communicator_;
  WriteJob job_;
  std::vector<io::EngineFile> files_;
  std::uint64_t total_bytes_ = 0;  ///< bytes of all files
  std::optional<format::BlockAccumulator> checksums_;
  std::unique_ptr<io::Engine> engine_;
  std::vector<io::WriteOp> ops_;                  ///< writes of the current window
  std::vector<io::WriteOp> headers_;              ///< writes of this rank's share of the headers
  std::vector<std::vector<io::WriteOp>> direct_;  ///< writes of direct runs, by round
  std::optional<WrongWindow> wrong_;              ///< the first wrong window of this rank
  std::vector<bool> is_written_;                  ///< by file; empty: all are
  std::vector<bool> is_summed_;                   ///< by file: checksummed and digested in step 0; empty: none is
};

}  // namespace cairn::checkpoint
