// Moves requests between memory and descriptors, several in flight: what a ceiling is measured with.
//
// Written apart from Cairn's engines on purpose: what judges them must not share their code. Nothing here communicates.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>

namespace cairn::bench {

enum class RawMethod {
  kUring,     ///< O_DIRECT through io_uring
  kThreads,   ///< O_DIRECT by a thread per request in flight, where io_uring is refused
  kBuffered,  ///< pread and pwrite through the page cache, where O_DIRECT is refused
  kMemory     ///< the same on a file system in memory, where writing is allocating
};

/// "O_DIRECT, io_uring", "O_DIRECT, threads", "page cache", "file system in memory".
std::string_view name_of(RawMethod method);

struct RawRequest {
  int descriptor = -1;
  bool is_write = false;
  std::byte* data = nullptr;
  std::uint64_t size_bytes = 0;    ///< asked for; whole pages under O_DIRECT
  std::uint64_t offset_bytes = 0;  ///< in the file
  std::uint64_t needed_bytes = 0;  ///< enough: less than size_bytes where a read meets the end of the file
};

/// The next request that a slot carries, or nothing when there is no more. A slot has one request in flight, so that
/// its memory is free whenever it is asked. Called by one thread at a time.
using NextRequest = std::function<std::optional<RawRequest>(unsigned slot)>;

class RawTransfer {
 public:
  virtual ~RawTransfer() = default;
  /// Rank-local. Returns when every request is complete. Throws Error(kIo) naming offset and errno; requests in flight
  /// are waited for before.
  virtual void run(const NextRequest& next) = 0;
};

/// Rank-local. Throws Error(kIo) when io_uring is refused.
std::unique_ptr<RawTransfer> make_raw_transfer(RawMethod method, unsigned slots);

/// Rank-local. The best method that works in the directory: a page is written there and read back by each in turn.
/// Throws Error(kIo) when not even the last works.
RawMethod find_raw_method(const std::filesystem::path& directory);

/// Rank-local. Opens with the flags of open(2), and O_DIRECT unless the method is kBuffered or kMemory. The caller
/// closes.
int open_raw(const std::filesystem::path& path, int flags, RawMethod method);

}  // namespace cairn::bench
