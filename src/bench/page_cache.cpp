#include "bench/page_cache.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>

#include "base/checked.hpp"
#include "bench/raw_file.hpp"
#include "cairn/error.hpp"
#include "os/file.hpp"
#include "os/system_calls.hpp"

namespace cairn::bench {
namespace {

constexpr const char* kDropFile = "/proc/sys/vm/drop_caches";
constexpr double kMostCachedShare = 0.01;
constexpr double kDefeatingFactor = 3;  // as in MLPerf Storage's rule for clients that do not clear caches

// Number of cached pages of the file.
std::uint64_t cached_pages(const std::filesystem::path& path, std::uint64_t bytes, std::uint64_t page_bytes) {
  const os::File file(path, os::OpenMode::kRead);
  void* mapping = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, file.descriptor(), 0);
  if (mapping == MAP_FAILED) os::throw_system_error("mmap of", path, errno);
  std::vector<unsigned char> pages(base::ceil_div(bytes, page_bytes));
  const int result = ::mincore(mapping, bytes, pages.data());
  const int error = errno;
  ::munmap(mapping, bytes);
  if (result != 0) os::throw_system_error("mincore of", path, error);
  return static_cast<std::uint64_t>(
      std::count_if(pages.begin(), pages.end(), [](unsigned char p) { return (p & 1) != 0; }));
}

}  // namespace

void drop_pages(std::span<const std::filesystem::path> files) {
  for (const std::filesystem::path& path : files) {
    const os::File file(path, os::OpenMode::kRead);
    ::posix_fadvise(file.descriptor(), 0, 0, POSIX_FADV_DONTNEED);  // cached_share() shows the effect
  }
}

void drop_all_pages() {
  std::ofstream out(kDropFile);
  out << "1\n" << std::flush;
  if (!out) {
    throw Error(ErrorKind::kUsage, fmt::format("{} cannot be written; --drop-caches needs root", kDropFile));
  }
}

void touch_free_memory(std::uint64_t bytes) {
  if (bytes == 0) return;
  void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    const int error = errno;
    throw Error(ErrorKind::kIo, fmt::format("mmap of {} bytes failed: {}", bytes, os::error_text(error)), {error, {}});
  }
  ::madvise(memory, bytes,
            MADV_NOHUGEPAGE);  // files get small pages, which the kernel keeps in separate lists
  auto* const pages = static_cast<volatile std::byte*>(memory);
  for (std::uint64_t at = 0; at < bytes; at += kRawPageBytes) pages[at] = std::byte{1};
  ::munmap(memory, bytes);
}

double cached_share(std::span<const std::filesystem::path> files) {
  const auto page_bytes = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  std::uint64_t all = 0;
  std::uint64_t cached = 0;
  for (const std::filesystem::path& path : files) {
    const std::uint64_t bytes = os::file_size(path);
    if (bytes == 0) continue;
    all += base::ceil_div(bytes, page_bytes);
    cached += cached_pages(path, bytes, page_bytes);
  }
  return all == 0 ? 0 : static_cast<double>(cached) / static_cast<double>(all);
}

std::string cache_label(double cached_share, double bytes, double memory_bytes) {
  if (cached_share <= kMostCachedShare) return "dropped";
  if (memory_bytes > 0 && bytes >= kDefeatingFactor * memory_bytes) return "defeated by size";
  return "warm cache";
}

std::vector<std::filesystem::path> files_in(const std::filesystem::path& directory) {
  std::vector<std::filesystem::path> files;
  for (const os::DirectoryEntry& entry : os::list_directory(directory)) {
    if (entry.is_regular) files.push_back(directory / entry.name);
  }
  return files;
}

}  // namespace cairn::bench
