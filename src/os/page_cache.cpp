#include "os/page_cache.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <vector>

#include "base/checked.hpp"

namespace cairn::os {
namespace {

/// Bytes mapped at a time for counting.
constexpr std::uint64_t kMappedBytes = 1ULL << 30;
constexpr int kAttempts = 3;
constexpr std::chrono::milliseconds kBetweenAttempts{2};

std::uint64_t cached_bytes(const File& file, std::uint64_t offset, std::uint64_t bytes, std::uint64_t page_bytes) {
  void* const mapping = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, file.descriptor(), static_cast<off_t>(offset));
  if (mapping == MAP_FAILED) return bytes;
  std::vector<unsigned char> pages(base::ceil_div(bytes, page_bytes));
  const bool is_told = ::mincore(mapping, bytes, pages.data()) == 0;
  ::munmap(mapping, bytes);
  if (!is_told) return bytes;
  const auto cached = std::count_if(pages.begin(), pages.end(), [](unsigned char page) { return (page & 1) != 0; });
  return std::min(bytes, static_cast<std::uint64_t>(cached) * page_bytes);
}

}  // namespace

std::uint64_t drop_cached(const File& file, std::uint64_t offset, std::uint64_t bytes) {
  const auto page_bytes = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  const std::uint64_t end = offset + bytes;
  const std::uint64_t begin = offset - offset % page_bytes;
  ::fdatasync(file.descriptor());  // dirty pages cannot be dropped; pages that were not written back are counted
  std::uint64_t cached = 0;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    // The kernel skips pages that another processor holds for a moment, and pages that are still being read ahead.
    if (attempt > 0) std::this_thread::sleep_for(kBetweenAttempts);
    ::posix_fadvise(file.descriptor(), static_cast<off_t>(begin),
                    static_cast<off_t>(base::round_up(end, page_bytes) - begin), POSIX_FADV_DONTNEED);
    cached = 0;
    for (std::uint64_t at = begin; at < end; at += kMappedBytes) {
      cached += cached_bytes(file, at, std::min(kMappedBytes, end - at), page_bytes);
    }
    cached = std::min(cached, bytes);
    if (cached == 0) break;
  }
  return cached;
}

void read_ahead(const File& file, std::uint64_t offset, std::uint64_t bytes) {
  ::posix_fadvise(file.descriptor(), static_cast<off_t>(offset), static_cast<off_t>(bytes), POSIX_FADV_WILLNEED);
}

}  // namespace cairn::os
