// Moves requests between memory and descriptors, several in flight, to measure ceilings.
//
// Deliberately separate from Cairn's engines, since a reference must not share their code. Nothing here communicates.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>

#include "os/file.hpp"

namespace cairn::bench {

enum class RawMethod {
  kUring,     ///< O_DIRECT through io_uring
  kThreads,   ///< O_DIRECT with one thread per request in flight, if io_uring is refused
  kBuffered,  ///< pread and pwrite through the page cache, if O_DIRECT is refused
  kMemory     ///< pread and pwrite on a file system in memory, where writes allocate
};

/// "O_DIRECT, io_uring", "O_DIRECT, threads", "page cache", "file system in memory".
std::string_view name_of(RawMethod method);

struct RawRequest {
  int descriptor = -1;
  bool is_write = false;
  std::byte* data = nullptr;
  std::uint64_t size_bytes = 0;    ///< whole pages with O_DIRECT
  std::uint64_t offset_bytes = 0;  ///< in the file
  std::uint64_t needed_bytes = 0;  ///< bytes that suffice: fewer than size_bytes if a read reaches the end of the file
};

/// The next request of a slot, or nothing at the end. A slot has one request in flight, so its memory is free at each
/// call. Called by one thread at a time.
using NextRequest = std::function<std::optional<RawRequest>(unsigned slot)>;

class RawTransfer {
 public:
  virtual ~RawTransfer() = default;
  /// Rank-local. Returns when every request is complete. Throws Error(kIo) naming offset and errno,
  /// after all requests in flight have ended.
  virtual void run(const NextRequest& next) = 0;
};

/// Rank-local. Throws Error(kIo) if io_uring is refused.
std::unique_ptr<RawTransfer> make_raw_transfer(RawMethod method, unsigned slots);

/// Rank-local. kMemory on a file system in memory; otherwise the best method that works in the directory, found by
/// writing a page and reading it back. Throws Error(kIo) if no method works.
RawMethod find_raw_method(const std::filesystem::path& directory);

/// Rank-local. Opens with the flags of open(2), and O_DIRECT unless the method is kBuffered or kMemory.
os::Descriptor open_raw(const std::filesystem::path& path, int flags, RawMethod method);

}  // namespace cairn::bench
