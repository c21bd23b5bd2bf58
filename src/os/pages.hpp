// Pages of memory as the kernel keeps them: those of files in its page cache, and huge ones.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

#include "os/file.hpp"

namespace cairn::os {

// What this machine remembers of files: their pages in its page cache. A read that must show what storage holds asks
// for them to be forgotten, and counts what is left: what was asked for is not a proof.

/// Writes back what is dirty of a file, and asks the kernel to forget its pages in [offset, offset + bytes). Returns
/// how many of these bytes are in the page cache all the same; all of them where the kernel does not tell: it tells
/// owners of a file, and who may write it.
std::uint64_t drop_cached(const File& file, std::uint64_t offset, std::uint64_t bytes);

/// Asks the kernel to read these bytes into the page cache, and does not wait. No promise.
void read_ahead(const File& file, std::uint64_t offset, std::uint64_t bytes);

// Which memory of a process may lie in huge pages, by what the kernel's settings say (they are read, never changed),
// and memory files that lie in them whatever is set.
//
// O_DIRECT hands a disk a list of pieces of memory. A huge page is one piece where small pages are up to 512, and a
// disk takes only so many pieces a request.

struct HugePages {
  bool private_memory = false;  ///< anonymous memory with MADV_HUGEPAGE gets them
  bool shared_memory = false;   ///< so does a memory file (memfd) with MADV_HUGEPAGE

  friend bool operator==(const HugePages&, const HugePages&) = default;
};

/// Settings that are not there (a kernel without huge pages, /sys hidden) say no.
HugePages huge_pages(const std::filesystem::path& settings = "/sys/kernel/mm/transparent_hugepage");

inline constexpr std::uint64_t kHugePageBytes = 2ULL << 20;

/// Maps a memory file (memfd), shared, on an address where a huge page may begin. Null, with errno, when it is refused.
std::byte* map_memory_file(int descriptor, std::uint64_t bytes);

/// Gives huge pages to the whole units of 2 MiB of `memory`, in which map_memory_file() mapped the file from `offset`
/// on, a multiple of a unit; what it holds stays. The settings are not asked (MADV_COLLAPSE, Linux 6.1; only "deny"
/// refuses). Returns the bytes that have them: 0 on older kernels, less than all when free memory lies in too small
/// pieces. Other pages are given when they are used.
std::uint64_t make_pages_huge(int descriptor, std::uint64_t offset, std::span<std::byte> memory);

/// Whether make_pages_huge() can do it here: tried once in a process.
bool can_make_pages_huge();

/// Private memory of this process, in huge pages where it may have them, all of which it has already: the first copy
/// into it is as fast as the later ones. Children of fork() do not have it.
class PopulatedMemory {
 public:
  PopulatedMemory() = default;
  /// Throws Error(kIo) when the system has no such memory left.
  explicit PopulatedMemory(std::uint64_t bytes);
  ~PopulatedMemory();
  PopulatedMemory(PopulatedMemory&& other) noexcept;
  PopulatedMemory& operator=(PopulatedMemory&& other) noexcept;
  PopulatedMemory(const PopulatedMemory&) = delete;
  PopulatedMemory& operator=(const PopulatedMemory&) = delete;

  [[nodiscard]] std::span<std::byte> span() const { return {data_, size_}; }

 private:
  std::byte* data_ = nullptr;
  std::uint64_t size_ = 0;
};

}  // namespace cairn::os
