// O_DIRECT: a second descriptor of a file that goes past the page cache, and what it asks of offsets and memory.
//
// File systems may refuse it (tmpfs before Linux 6.6, some FUSE and overlay mounts); the reason is an answer here, not
// an error, because the caller has another way. On a file system in memory there is nothing to go past, so it is not
// taken there even where the kernel would accept it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "os/file.hpp"

namespace cairn::os {

struct DirectFile {
  File file;                    ///< not open when refused
  std::uint64_t alignment = 0;  ///< offsets, lengths and addresses must be multiples; a power of two up to 64 KiB
  std::string refusal;          ///< why there is no O_DIRECT; empty when there is
};

/// Opens an existing file for reading or writing (kRead or kWrite). Throws Error as File does for everything but the
/// refusal of O_DIRECT itself. Fault hook: step "os.direct" with any errno is a refusal.
DirectFile open_direct(const std::filesystem::path& path, OpenMode mode);

namespace internal {
/// Warns once, and gives the reason, when O_DIRECT is refused at a transfer.
std::string direct_refusal(const std::filesystem::path& path, const char* verb, int error);
}  // namespace internal

/// Reads into `data` at `offset`, both aligned and so long as the alignment asks for; the file may end after the first
/// `needed_bytes`. `plain` is the same file without O_DIRECT, for what is left of a short transfer that O_DIRECT cannot
/// address. Blocks; errors, interruptions and fault hooks are those of File::read_at. Returns why O_DIRECT was refused
/// after all, and `plain` was read; empty when it was not.
std::string read_direct(const DirectFile& file, const File& plain, std::span<std::byte> data, std::uint64_t offset,
                        std::uint64_t needed_bytes);

}  // namespace cairn::os
