// The memory files (memfd) that this process holds: what shared memory of ranks lies in.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <filesystem>
#include <system_error>
#include <vector>

namespace cairn::test {

/// Of each with so many bytes: its pages of 4 KiB that are given, or reserved.
inline std::vector<std::uint64_t> pages_of_memory_files(std::uint64_t bytes) {
  std::vector<std::uint64_t> pages;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code error;  // the descriptor of this listing is gone, others may be
    const auto target = std::filesystem::read_symlink(entry.path(), error);
    struct stat status {};
    if (error || !target.string().starts_with("/memfd:cairn") || ::stat(entry.path().c_str(), &status) != 0) continue;
    if (static_cast<std::uint64_t>(status.st_size) == bytes)
      pages.push_back(static_cast<std::uint64_t>(status.st_blocks) * 512 / 4096);
  }
  return pages;
}

}  // namespace cairn::test
