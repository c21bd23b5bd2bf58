// Small files read as a whole past the page cache (disk_reader.hpp): for verify, and for saves that read back what they wrote.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "io/disk_reader.hpp"

namespace cairn::io {

/// A whole small file past the page cache. Throws Error(kFormat) when it is larger than `limit_bytes`.
std::string read_text_from_disk(DiskReader& reader, const std::filesystem::path& path, std::uint64_t limit_bytes);

/// Of a file of that size, past the page cache.
std::uint32_t crc32c_from_disk(DiskReader& reader, const std::filesystem::path& path, std::uint64_t size_bytes);

/// The end of the message when what was just written reads back otherwise.
inline constexpr const char* kReadBackRefused = "storage reported more as written than it holds; the save is refused";

/// Rank-local. Throws Error(kIntegrity), or what reading throws, unless the file has that size and checksum.
void read_back_file(const std::filesystem::path& path, std::uint64_t size_bytes, std::uint32_t crc32c);

}  // namespace cairn::io
