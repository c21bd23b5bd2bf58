// One rank's part of a raw ceiling: writing its own file, and reading its share of everybody's.
//
// Each object is made before the clock (open, space, memory), does its I/O in one call, and is checked after.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/aligned_buffer.hpp"
#include "bench/rank_memory.hpp"
#include "bench/raw_layout.hpp"
#include "bench/raw_pattern.hpp"
#include "bench/raw_transfer.hpp"

namespace cairn::bench {

struct RawOptions {
  RawMethod method = RawMethod::kUring;
  std::uint64_t request_bytes = 4ULL << 20;  ///< a multiple of a page
  unsigned in_flight = 8;                    ///< requests of a rank
};

/// Where the bytes come from or go to: the memory of the requests, or other memory, by one copy. A checkpoint cannot do with
/// less than the copy: shards do not lie as files do.
enum class RawWay { kPlain, kCopied };

/// File `file` of a set in the directory.
std::filesystem::path raw_path(const std::filesystem::path& directory, std::uint32_t file);

/// What a RawReader of the pieces takes: each is read in whole pages.
std::uint64_t bytes_to_read(std::span<const RawPiece> pieces);

/// A descriptor that is closed with the object.
class RawDescriptor {
 public:
  explicit RawDescriptor(int descriptor) : descriptor_(descriptor) {}
  ~RawDescriptor();
  RawDescriptor(RawDescriptor&& other) noexcept : descriptor_(other.descriptor_) { other.descriptor_ = -1; }
  RawDescriptor& operator=(RawDescriptor&&) = delete;
  [[nodiscard]] int get() const { return descriptor_; }

 private:
  int descriptor_;
};

/// Rank-local. `pattern` must outlive the object and have the period of a request; `memory` is the object's while it lives.
class RawWriter {
 public:
  /// Makes the file anew (what had its name is gone), with its space where the file system can reserve it. In memory
  /// that would be half of the work of writing. Copied bytes come from memory that no cache holds.
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
  RawDescriptor descriptor_;
  std::span<base::AlignedBuffer> buffers_;  // one per slot
  std::span<std::byte> source_;             // empty: nothing is copied
  std::unique_ptr<RawTransfer> transfer_;
};

/// Rank-local. Holds all that it reads, so that each byte can be checked when the clock has stopped; `memory` is the object's
/// while it lives.
class RawReader {
 public:
  RawReader(const std::filesystem::path& directory, std::vector<RawPiece> pieces, const RawOptions& options,
            RankMemory& memory, RawWay way = RawWay::kPlain);
  void read();
  /// What is wrong, in words; nothing when every page is as it was written.
  [[nodiscard]] std::optional<std::string> fault(const RawPattern& pattern) const;

 private:
  struct Part {
    RawDescriptor descriptor;
    RawPiece piece;
    std::uint64_t begin;  // in memory_
  };
  // A buffer of a slot, and where the bytes go that its request has brought.
  struct Slot {
    std::span<std::byte> buffer;
    std::span<std::byte> to;
  };
  void copy_out(Slot& slot);

  std::filesystem::path directory_;
  RawOptions options_;
  std::vector<Part> parts_;
  std::span<std::byte> memory_;
  std::vector<Slot> slots_;  // none: requests read into memory_ themselves
  std::unique_ptr<RawTransfer> transfer_;
};

}  // namespace cairn::bench
