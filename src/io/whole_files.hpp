// Small files, read whole and past the page cache (disk_reader.hpp), for verify and for saves that read files back.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "io/disk_reader.hpp"

namespace cairn::io {

/// The content of a small file. Throws Error(kFormat) if the file is larger than `limit_bytes`.
std::string read_text_from_disk(DiskReader& reader, const std::filesystem::path& path, std::uint64_t limit_bytes);

/// The CRC-32C of a file of `size_bytes`.
std::uint32_t crc32c_from_disk(DiskReader& reader, const std::filesystem::path& path, std::uint64_t size_bytes);

/// The end of the message about a file that was just written and reads back with different bytes.
inline constexpr const char* kReadBackRefused = "storage reported more as written than it holds; the save is refused";

/// Rank-local. Throws Error(kIntegrity) unless the file has the given size and checksum; passes on read errors.
void read_back_file(const std::filesystem::path& path, std::uint64_t size_bytes, std::uint32_t crc32c);

}  // namespace cairn::io
