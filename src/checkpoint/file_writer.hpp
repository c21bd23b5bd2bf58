// Writes the data files of a layout window by window, with checksums of the bytes in memory: the common part of saves,
// conversions and staging files. In each round
//
//   wait_for_window      sleeps until storage has the former content of the window's buffer
//   (the caller)         fills the window, on all ranks together
//   finish_older_rounds  shares write errors with all ranks
//   checksum, submit     the window, while it is in cache; it is written while the next windows are filled
//
// After all rounds write_headers, so that a truncated file never has a valid header.
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
#include "checkpoint/non_finite.hpp"
#include "comm/communicator.hpp"
#include "format/blocks.hpp"
#include "io/bypass_runs.hpp"
#include "io/engine.hpp"
#include "io/window_pool.hpp"
#include "plan/extents.hpp"
#include "plan/file_layout.hpp"
#include "plan/pieces.hpp"

namespace cairn::checkpoint {

struct WriteJob {
  const plan::FileLayout& layout;
  const plan::ExtentMap& extents;
  std::span<const plan::Window> windows;  ///< this rank's
  const io::WindowPool& buffers;          ///< of the windows
  std::uint64_t rounds = 0;               ///< of all ranks
  bool has_checksums = true;
  const io::BypassRuns* direct_runs = nullptr;  ///< of this rank, for begin_direct(); null on all ranks: none
  NonFiniteCounter* counter = nullptr;          ///< gets all bytes of tensors as they are checksummed; or null
};

/// Returns when a direct run's bytes are in memory. Must not throw.
using WaitForBytes = std::function<void(std::span<const std::byte>)>;

/// Collective calls throw the same Error on all ranks. After an Error that did not come from the engine, call
/// close_after_error(). A rank that unwinds alone must not: closing is collective.
class FileWriter {
 public:
  /// Does nothing yet. The objects that `job` refers to must outlive this one.
  FileWriter(comm::Communicator& communicator, const WriteJob& job) : communicator_(communicator), job_(job) {}

  /// Collective. Creates the files in `directory`. Allocates for all rounds:
  /// between them nothing may fail on one rank alone.
  void open(const std::string& engine, const io::Hints& hints, const std::filesystem::path& directory);

  /// Collective. Writes the runs that bypass the windows, from `memory`, their boxes; phases "checksum" and "write".
  void write_bypass(const io::BypassRuns& runs, const io::BypassMemory& memory, Call& call);

  /// Collective. Write job.direct_runs by O_DIRECT, in two parts. begin_direct() hands each run to the engine when its
  /// bytes are in memory; phase "write". checksum_direct(), when all bytes are, checksums the runs while storage takes
  /// them; phases "checksum" and "write".
  void begin_direct(std::span<const plan::MemoryBox> memory, const WaitForBytes& wait);
  void checksum_direct(Call& call);

  /// Rank-local; reports progress. This rank may have no window in the round. Header bytes in the window are not used.
  io::WindowBuffer wait_for_window(std::uint64_t round);
  /// Collective. Short after an exchange, when all ranks arrive together.
  void finish_older_rounds();
  /// Rank-local. `arrived_bytes`: that came into the window. Returns the bytes that were checksummed. A difference is
  /// noted in every round, but agreed on only by write_headers(): one synchronisation less a round.
  std::uint64_t checksum(const io::WindowBuffer& window, std::uint64_t arrived_bytes);
  /// Collective: begins to write the window that was given to checksum(). Returns its bytes.
  std::uint64_t submit();

  /// Rank-local, before write_headers(). Returns the bytes of the headers.
  std::uint64_t checksum_headers();
  /// Collective, after all rounds. Throws Error(kInternal) when a window did not get the expected bytes.
  void write_headers();
  /// Collective: everything is on storage when it returns.
  void sync_and_close();
  /// Collective. The result is the same on every rank.
  format::BlockTable reduce_checksums();

  /// Rank-local, after open(), the same on all ranks.
  [[nodiscard]] io::Hints hints() const { return engine_->hints(); }

  /// Collective, after a comm::AgreedError.
  void close_after_error() noexcept { io::close_after_error(engine_.get()); }

 private:
  /// A window that did not get the expected bytes.
  struct WrongWindow {
    std::uint64_t round = 0;
    std::uint64_t arrived_bytes = 0;
    std::uint64_t expected_bytes = 0;
  };
  void add_checksums(std::span<const io::WriteOp> ops);
  void add_checksum(std::uint32_t file, std::uint64_t offset, std::span<const std::byte> data);
  /// Bytes of all ranks in no extent.
  [[nodiscard]] std::uint64_t bypass_bytes() const { return total_bytes_ - job_.extents.total_bytes(); }

  comm::Communicator& communicator_;
  WriteJob job_;
  std::vector<io::EngineFile> files_;
  std::uint64_t total_bytes_ = 0;  ///< of all files
  std::optional<format::BlockAccumulator> checksums_;
  std::unique_ptr<io::Engine> engine_;
  std::uint64_t round_ = 0;                       ///< of the current window
  std::vector<io::WriteOp> ops_;                  ///< of the current window
  std::vector<io::WriteOp> headers_;              ///< this rank's share
  std::vector<std::vector<io::WriteOp>> direct_;  ///< rounds of direct runs
  std::optional<WrongWindow> wrong_;              ///< the first one
};

}  // namespace cairn::checkpoint
