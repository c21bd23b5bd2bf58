// Writes the data files of a layout window by window, with checksums of what was in memory: what a save, a conversion
// and a staging file have around their loops. In each round
//
//   wait_for_window      asleep, until storage has what was in the window's buffer
//   (the caller)         fills the window, all ranks together
//   finish_older_rounds  all ranks learn what writing met
//   checksum, submit     the window, while it is in the cache; it is written while the next ones are filled
//
// and after all data write_headers, so that a file cut off in the middle never has a valid header.
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
  NonFiniteCounter* counter = nullptr;          ///< is given all bytes of tensors when they are checksummed; or none
};

/// Returns when a direct run's bytes are in memory. Must throw nothing.
using WaitForBytes = std::function<void(std::span<const std::byte>)>;

/// Collective calls throw the same Error on all ranks. What it has open after an Error that is none of an engine's is
/// closed by close_after_error(), or not at all where ranks have a file open together and one of them unwinds alone.
class FileWriter {
 public:
  /// Does nothing yet. What `job` refers to must outlive the object.
  FileWriter(comm::Communicator& communicator, const WriteJob& job) : communicator_(communicator), job_(job) {}

  /// Collective. Creates the files in `directory`. All that the rounds need is made here: between them nothing may fail
  /// on one rank alone.
  void open(const std::string& engine, const io::Hints& hints, const std::filesystem::path& directory);

  /// Collective. Writes what goes to the files without a window; phases "checksum" and "write". `memory`: the memory
  /// boxes of the runs.
  void write_bypass(const io::BypassRuns& runs, const io::BypassMemory& memory, Call& call);

  /// Collective. The same for job.direct_runs, by O_DIRECT, in two parts: the first hands them to the engine, each when its bytes
  /// are there; the second, with all of them there, checksums them while storage takes them. Phase "write", and
  /// "checksum" and "write".
  void begin_direct(std::span<const plan::MemoryBox> memory, const WaitForBytes& wait);
  void checksum_direct(Call& call);

  /// Rank-local; tells how far the work has come. This rank may have no window in the round. Bytes of headers in it are
  /// left alone.
  io::WindowBuffer wait_for_window(std::uint64_t round);
  /// Collective. Nobody waits long where all ranks come from an exchange.
  void finish_older_rounds();
  /// Rank-local, with the bytes that arrived in the window; returns those of its checksums. What arrived is looked at
  /// in every round and agreed on once, by write_headers(): a round less of waiting for each other.
  std::uint64_t checksum(const io::WindowBuffer& window, std::uint64_t arrived_bytes);
  /// Collective: begins to write the window that was given to checksum(). Returns its bytes.
  std::uint64_t submit();

  /// Rank-local, before they are written. Returns their bytes.
  std::uint64_t checksum_headers();
  /// Collective, after all rounds. Throws Error(kInternal) when a window did not get what it should have.
  void write_headers();
  /// Collective: all is on storage when it returns.
  void sync_and_close();
  /// Collective. The same on every rank.
  format::BlockTable reduce_checksums();

  /// Rank-local, after open(), the same on all ranks.
  [[nodiscard]] io::Hints hints() const { return engine_->hints(); }

  /// Collective, after a comm::AgreedError, whoever met it.
  void close_after_error() noexcept { io::close_after_error(engine_.get()); }

 private:
  /// A window that did not get what it should have.
  struct WrongWindow {
    std::uint64_t round = 0;
    std::uint64_t arrived_bytes = 0;
    std::uint64_t expected_bytes = 0;
  };
  void add_checksums(std::span<const io::WriteOp> ops);
  void add_checksum(std::uint32_t file, std::uint64_t offset, std::span<const std::byte> data);
  /// Of all ranks: what is in no extent.
  [[nodiscard]] std::uint64_t bypass_bytes() const { return total_bytes_ - job_.extents.total_bytes(); }

  comm::Communicator& communicator_;
  WriteJob job_;
  std::vector<io::EngineFile> files_;
  std::uint64_t total_bytes_ = 0;  ///< of all files
  std::optional<format::BlockAccumulator> checksums_;
  std::unique_ptr<io::Engine> engine_;
  std::uint64_t round_ = 0;                       ///< of the window that is filled
  std::vector<io::WriteOp> ops_;                  ///< of it
  std::vector<io::WriteOp> headers_;              ///< this rank's share
  std::vector<std::vector<io::WriteOp>> direct_;  ///< rounds of direct runs
  std::optional<WrongWindow> wrong_;              ///< the first one
};

}  // namespace cairn::checkpoint
