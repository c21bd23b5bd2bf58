// The memory files (memfd) of this process, which hold the shared memory of ranks.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <filesystem>
#include <system_error>
#include <vector>

namespace cairn::test {

/// For each memory file of `bytes` bytes: the number of its 4 KiB pages that are allocated or reserved.
inline std::vector<std::uint64_t> pages_of_memory_files(std::uint64_t bytes) {
  std::vector<std::uint64_t> pages;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code error;  // this listing's descriptor is closed, and others may also be
    const auto target = std::filesystem::read_symlink(entry.path(), error);
    struct stat status {};
    if (error || !target.string().starts_with("/memfd:cairn") || ::stat(entry.path().c_str(), &status) != 0) continue;
    if (static_cast<std::uint64_t>(status.st_size) == bytes)
      pages.push_back(static_cast<std::uint64_t>(status.st_blocks) * 512 / 4096);
  }
  return pages;
}

}  // namespace cairn::test
