// The interface of engines, which move extents to and from storage. src/io/README.md describes each engine's use.
//
// - A write: open_for_write (creates and pre-sizes the files), rounds of writes, sync, close.
// - A read: open_for_read, rounds of reads, close.
// - A round is one call (write_round), or begins with begin_write and ends with finish_rounds, so that in between the
//   caller can fill the next window.
//
// All ranks of the communicator make the calls marked collective in the same order. Each ends in an agreement, so
// either all ranks go on or all throw the same Error. After an Error the engine can only be destroyed; the bytes that
// it wrote remain, but must not be used. A caller that gives up for another reason calls close() on all ranks, because
// a destructor cannot close files that ranks have open together.
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
  /// Empty: no rank writes the file (not with "mpiio"), or this rank cannot see the file, and does not read it.
  std::filesystem::path path;
  std::uint64_t size_bytes = 0;
};

/// Contiguous bytes of one file, and the memory that holds or receives them.
template <class Byte>
struct FileSpan {
  std::uint32_t file = 0;
  std::uint64_t offset = 0;
  std::span<Byte> data;
};
using WriteOp = FileSpan<const std::byte>;
using ReadOp = FileSpan<std::byte>;

/// Hints for MPI-IO ("romio_cb_write" ...). All engines use "striping_factor" and "striping_unit" for new Lustre files.
using Hints = std::map<std::string, std::string>;

class Engine {
 public:
  virtual ~Engine() = default;
  Engine() = default;
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  /// Collective. Creates every file, which must not exist, at its full size. `extents` and EngineOptions::more_files
  /// determine which ranks open each file. Errors: EEXIST, and ENOSPC if the file system reports it in time.
  virtual void open_for_write(std::vector<EngineFile> files, plan::ExtentMaps extents) = 0;
  virtual void open_for_read(std::vector<EngineFile> files, plan::ExtentMaps extents) = 0;

  /// Collective; every rank makes the same number of calls. `ops` lie in the rank's own extents or its
  /// EngineOptions::more_files, ascending by (file, offset). Data must stay valid until the call returns.
  virtual void write_round(std::span<const WriteOp> ops) = 0;
  virtual void read_round(std::span<const ReadOp> ops) = 0;

  /// As write_round and read_round, but may return without an agreement, while the bytes are in flight: data must stay
  /// valid and untouched until finish_rounds has finished the round or the engine is destroyed. An engine without this
  /// ability does the whole round here.
  virtual void begin_write(std::span<const WriteOp> ops) { write_round(ops); }
  virtual void begin_read(std::span<const ReadOp> ops) { read_round(ops); }
  /// Rank-local: sleeps until this rank's part of finish_rounds(unfinished) is done; finish_rounds() reports failures.
  virtual void wait_rounds(std::size_t unfinished) { static_cast<void>(unfinished); }
  /// Collective: returns when at most `unfinished` rounds, the most recent ones, are unfinished. Throws the failure
  /// of a round that ended.
  virtual void finish_rounds(std::size_t unfinished) { static_cast<void>(unfinished); }

  /// Collective. When it returns, all written bytes are on storage and the sizes of all files have been checked.
  virtual void sync() = 0;
  /// Collective.
  virtual void close() = 0;

  /// Rank-local, after files were opened, with the same result on all ranks: the relevant hints that MPI-IO reports.
  /// Empty for engines without MPI-IO.
  [[nodiscard]] virtual Hints hints() const { return {}; }
};

/// Default size of a request to the kernel, and the limit with a bounce buffer. The kernel holds more of such small
/// requests than a disk accepts at once, so the disk has a next request while the ranks are in the exchange.
constexpr std::uint64_t kRequestBytes = 1ULL << 20;

struct EngineOptions {
  Hints hints;
  bool reserve_space = true;  ///< fallocate new files where possible, so that ENOSPC shows before data moves
  std::uint64_t request_bytes = kRequestBytes;  ///< "direct": largest request to the kernel
  /// "direct": memory in huge pages through which reads go, at least kRequestBytes; it must outlive the engine. The
  /// engine then touches the data of begin_read only when the caller waits for the round.
  std::span<std::byte> bounce_buffer = {};
  /// Files, ascending, that this rank writes in addition to those in its extents; "mpiio" ignores them.
  std::vector<std::uint32_t> more_files = {};
};

/// The capabilities of an engine.
struct EngineTraits {
  std::string_view name;     ///< empty: there is no such engine
  bool uses_mpi_io = false;  ///< uses MPI-IO, whose calls cannot be interrupted; other engines use system calls
  bool is_direct = false;    ///< uses O_DIRECT if the file system supports it
};
/// The traits of engine "direct", "mpiio" or "posix".
EngineTraits engine_traits(std::string_view name);

/// Throws Error(kUsage) if there is no such engine.
void check_engine_name(std::string_view name);

/// Throws Error(kUsage) for an unknown name, bad hints, or "mpiio" without MPI. `communicator` must outlive the engine.
std::unique_ptr<Engine> make_engine(std::string_view name, comm::Communicator& communicator, EngineOptions options);

/// Collective. As make_engine(), but an error on any rank is thrown on all, and then no rank has an engine.
std::unique_ptr<Engine> make_engine_on_all(std::string_view name, comm::Communicator& communicator,
                                           EngineOptions options);

/// Collective, after an Error that all ranks threw (comm::AgreedError): closes the files and logs further errors.
/// `engine` may be null (on all ranks or on none), or may have closed its files already.
void close_after_error(Engine* engine) noexcept;

}  // namespace cairn::io
