// The files of raw ceilings: their layout, their content, and one rank's part of writing and reading them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/aligned_buffer.hpp"
#include "bench/ranks.hpp"
#include "bench/raw_transfer.hpp"

namespace cairn::bench {

// The layout: one file per writing rank; any number of readers read all files as one sequence of bytes. Pure.
//
// Some file systems serialise writes to one file, which a ceiling must avoid. Shares are cut at pages of 4 KiB, which
// O_DIRECT requires; only the last file may end within a page.

inline constexpr std::uint64_t kRawPageBytes = 4096;

/// A contiguous part of a file; offset_bytes is a multiple of a page.
struct RawPiece {
  std::uint32_t file = 0;
  std::uint64_t offset_bytes = 0;
  std::uint64_t size_bytes = 0;

  friend bool operator==(const RawPiece&, const RawPiece&) = default;
};

class RawLayout {
 public:
  /// `total_bytes` in `writers` files. Requires: writers > 0.
  RawLayout(std::uint64_t total_bytes, int writers) : total_bytes_(total_bytes), writers_(writers) {}

  [[nodiscard]] std::uint64_t total_bytes() const { return total_bytes_; }
  [[nodiscard]] int files() const { return writers_; }
  /// Size of a file; can be 0 if there are more writers than pages.
  [[nodiscard]] std::uint64_t file_bytes(int file) const;
  /// The pieces of reader `rank` of `readers`, in order. All readers together read every byte once.
  [[nodiscard]] std::vector<RawPiece> pieces_of(int rank, int readers) const;

 private:
  /// First byte of share `index` of `shares`.
  [[nodiscard]] std::uint64_t begin_of(int index, int shares) const;

  std::uint64_t total_bytes_;
  int writers_;
};

// The content of raw files: random bytes, which storage cannot compress, and which identify their place.
//
// One block of random bytes, as large as a request, is repeated over a file, so a request's buffer is filled only once,
// before the clock starts. The first eight bytes of each page are a hash of seed, file and offset, so that no two
// pages are equal, and a page from the wrong place or from an earlier run is detected.

class RawPattern {
 public:
  /// `period_bytes`: a multiple of a page.
  RawPattern(std::uint64_t seed, std::uint64_t period_bytes);

  /// Fills a buffer for a part of a file that begins at a multiple of the period; stamp() completes the buffer.
  void fill(std::span<std::byte> buffer) const;
  /// Marks the pages of a filled buffer as pages of the file from `offset_bytes` on.
  void stamp(std::span<std::byte> buffer, std::uint32_t file, std::uint64_t offset_bytes) const;

  /// Offset in the file of the first wrong page; nothing if all are right. `offset_bytes` is a multiple of a page.
  [[nodiscard]] std::optional<std::uint64_t> first_difference(std::span<const std::byte> found, std::uint32_t file,
                                                              std::uint64_t offset_bytes) const;

 private:
  [[nodiscard]] std::uint64_t mark_of(std::uint32_t file, std::uint64_t page) const;

  std::uint64_t seed_;
  base::AlignedBuffer period_;
};

// One rank's part of a raw ceiling: it writes its own file, and reads its share of all files.
//
// Objects are made before the clock starts (open, space, memory), and do their I/O in one call. Checks come later.

struct RawOptions {
  RawMethod method = RawMethod::kUring;
  std::uint64_t request_bytes = 4ULL << 20;  ///< a multiple of a page
  unsigned in_flight = 8;                    ///< requests of a rank in flight
};

/// kCopied: every byte is also copied once between the requests' memory and other memory. A checkpoint needs at least
/// this copy, because shards and files have different layouts.
enum class RawWay { kPlain, kCopied };

/// Path of file number `file` in the directory.
std::filesystem::path raw_path(const std::filesystem::path& directory, std::uint32_t file);

/// Bytes of memory that a RawReader needs for the pieces; each piece is read in whole pages.
std::uint64_t bytes_to_read(std::span<const RawPiece> pieces);

/// Rank-local. `pattern` must outlive the object and have the period of a request;
/// `memory` belongs to the writer as long as the writer exists.
class RawWriter {
 public:
  /// Replaces the file with a new one, and reserves its space if the file system can. In memory, no space is reserved,
  /// since that would be half the work of writing. With kCopied, bytes come from more memory than caches hold.
  RawWriter(const std::filesystem::path& path, std::uint32_t file, std::uint64_t bytes, const RawOptions& options,
            const RawPattern& pattern, RankMemory& memory, RawWay way = RawWay::kPlain);
  /// Writes every byte and ends with fsync. Throws Error(kIo).
  void write();

 private:
  std::filesystem::path path_;
  std::uint32_t file_;
  std::uint64_t bytes_;
  RawOptions options_;
  const RawPattern& pattern_;
  os::Descriptor descriptor_;
  std::span<base::AlignedBuffer> buffers_;  // one per slot
  std::span<std::byte> source_;             // empty with kPlain
  std::unique_ptr<RawTransfer> transfer_;
};

/// Rank-local. Keeps all bytes that it reads, so that they can be checked after the clock has stopped. `memory` belongs
/// to the reader as long as the reader exists.
class RawReader {
 public:
  RawReader(const std::filesystem::path& directory, std::vector<RawPiece> pieces, const RawOptions& options,
            RankMemory& memory, RawWay way = RawWay::kPlain);
  void read();
  /// A description of the first fault; nothing if every page is as it was written.
  [[nodiscard]] std::optional<std::string> fault(const RawPattern& pattern) const;

 private:
  struct Part {
    os::Descriptor descriptor;
    RawPiece piece;
    std::uint64_t begin;  // in memory_
  };
  // The buffer of a slot, and the destination to which its request's bytes are copied.
  struct Slot {
    std::span<std::byte> buffer;
    std::span<std::byte> to;
  };
  void copy_out(Slot& slot);

  std::filesystem::path directory_;
  RawOptions options_;
  std::vector<Part> parts_;
  std::span<std::byte> memory_;
  std::vector<Slot> slots_;  // empty with kPlain: requests then read into memory_
  std::unique_ptr<RawTransfer> transfer_;
};

}  // namespace cairn::bench
