// How extents reach storage. One interface; src/io/README.md says what each engine is for.
//
// Life of a write: open_for_write (files are created and pre-sized), rounds of writes, sync, close. Of a read:
// open_for_read, rounds of reads, close. A round is one call (write_round), or begins with begin_write and ends with
// finish_rounds, so that the caller can fill the next window meanwhile. Calls marked collective are made by all ranks
// of the communicator in the same order; each ends in an agreement, so that either all ranks go on or all throw the
// same Error. After an Error the engine has closed its files and can only be destroyed; what it wrote stays and is
// worthless. Who gives up for another reason calls close() on all ranks: a destructor cannot close files that ranks
// have open together.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "comm/communicator.hpp"
#include "plan/extents.hpp"

namespace cairn::io {

struct EngineFile {
  std::filesystem::path path;  ///< empty: this rank does not see the file, and reads nothing of it
  std::uint64_t size_bytes = 0;
};

/// Contiguous bytes of one file, and the memory that has them or gets them.
template <class Byte>
struct FileSpan {
  std::uint32_t file = 0;
  std::uint64_t offset = 0;
  std::span<Byte> data;
};
using WriteOp = FileSpan<const std::byte>;
using ReadOp = FileSpan<std::byte>;

/// Free-form hints, passed to MPI_Info by "mpiio" ("striping_factor", "romio_cb_write" ...). Unknown keys are MPI's
/// business.
using Hints = std::map<std::string, std::string>;

class Engine {
 public:
  virtual ~Engine() = default;
  Engine() = default;
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  [[nodiscard]] virtual std::string_view name() const = 0;

  /// Collective. Creates every file at its size, in place of what had its name. `extents` says which ranks will touch
  /// which file: only they open it. Errors: ENOSPC where the file system can tell, EEXIST.
  virtual void open_for_write(std::vector<EngineFile> files, plan::ExtentMaps extents) = 0;
  virtual void open_for_read(std::vector<EngineFile> files, plan::ExtentMaps extents) = 0;

  /// Collective; every rank makes the same number of calls, with ops inside its own extents (none is normal), ascending
  /// by (file, offset), several per file as they come. Data must live until the call returns.
  virtual void write_round(std::span<const WriteOp> ops) = 0;
  virtual void read_round(std::span<const ReadOp> ops) = 0;

  /// As write_round and read_round, but may return while the bytes are on their way: data must live, and not be
  /// touched, until finish_rounds says so or the engine is destroyed. An engine that cannot do that does the round
  /// here.
  virtual void begin_write(std::span<const WriteOp> ops) { write_round(ops); }
  virtual void begin_read(std::span<const ReadOp> ops) { read_round(ops); }
  /// Rank-local: waits, asleep, for what finish_rounds would wait for here; failures are kept for it.
  virtual void wait_rounds(std::size_t unfinished) { static_cast<void>(unfinished); }
  /// Collective: returns when at most `unfinished` of the rounds that began last are unfinished, or throws what an
  /// earlier one met.
  virtual void finish_rounds(std::size_t unfinished) { static_cast<void>(unfinished); }

  /// Collective: everything written is on storage when it returns, and every file has its size (read back).
  virtual void sync() = 0;
  /// Collective.
  virtual void close() = 0;

  /// Rank-local, after files were opened, the same on all ranks: the hints that MPI-IO took and that matter here. Empty
  /// for engines without MPI-IO.
  [[nodiscard]] virtual Hints hints() const { return {}; }
};

/// What a request to the kernel moves. So little that the kernel holds more of them than a disk takes at once: the disk
/// then has its next one whatever the ranks are doing.
constexpr std::uint64_t kRequestBytes = 1ULL << 20;

struct EngineOptions {
  Hints hints;
  bool reserve_space = true;  ///< fallocate new files where that works, so that ENOSPC shows before data moves
  std::uint64_t request_bytes = kRequestBytes;  ///< "direct": what one request to the kernel moves
  /// "direct": memory in huge pages that reads go through, kRequestBytes at least; it must outlive the engine. The data
  /// of begin_read is then not touched before the round is waited for.
  std::span<std::byte> bounce_buffer = {};
  /// "direct": files, ascending, that this rank writes beside those in its extents.
  std::vector<std::uint32_t> more_files = {};
};

/// Throws Error(kUsage) for a name that no engine has: there are "direct", "mpiio" and "posix".
void check_engine_name(std::string_view name);

/// Throws as check_engine_name() does. `communicator` must outlive the engine.
std::unique_ptr<Engine> make_engine(std::string_view name, comm::Communicator& communicator, EngineOptions options);

/// Collective. As make_engine; what it throws on one rank is thrown on all, and none has an engine then.
std::unique_ptr<Engine> make_engine_on_all(std::string_view name, comm::Communicator& communicator,
                                           EngineOptions options);

/// Collective, after an Error that all ranks threw (comm::AgreedError), whoever met it: closes the files, and swallows
/// what goes wrong then. `engine` may be null, on all ranks alike, and may have closed them before.
void close_after_error(Engine* engine) noexcept;

}  // namespace cairn::io
