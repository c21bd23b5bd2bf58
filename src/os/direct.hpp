// O_DIRECT: a file's second descriptor, which bypasses the page cache, and the rules for its offsets and memory.
//
// File systems may refuse O_DIRECT (tmpfs before Linux 6.6, some FUSE and overlay mounts). The reason is returned, not
// thrown, because the caller does not depend on O_DIRECT. O_DIRECT is never used on a file system in memory, which has
// no cache to bypass.
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
  std::uint64_t alignment = 0;  ///< power of two, 4 to 64 KiB; offsets, lengths and addresses must be multiples of it
  std::string refusal;          ///< the reason why O_DIRECT is not used; empty if it is used
};

/// Opens an existing file for reading or writing (kRead or kWrite). Throws Error as File does, except for the refusal
/// of O_DIRECT itself. Fault hook: step "os.direct" refuses, with any errno.
DirectFile open_direct(const std::filesystem::path& path, OpenMode mode);

namespace internal {
/// Warns once that O_DIRECT was refused at a transfer, and returns the reason.
std::string direct_refusal(const std::filesystem::path& path, const char* verb, int error);
}  // namespace internal

/// Reads into `data` at `offset`; address, length and offset must be aligned. The file may end after the first
/// `needed_bytes`. `plain` is the same file without O_DIRECT, for the rest of a short transfer that O_DIRECT cannot
/// address. Blocks; handles errors, interruptions and fault hooks as File::read_at() does. If the file system refuses
/// O_DIRECT for the read, reads through `plain` and returns the reason; otherwise returns an empty string.
std::string read_direct(const DirectFile& file, const File& plain, std::span<std::byte> data, std::uint64_t offset,
                        std::uint64_t needed_bytes);

}  // namespace cairn::os
