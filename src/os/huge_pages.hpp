// Huge pages: the kernel's settings, which are read and never changed, and memory files that get huge pages anyway.
//
// O_DIRECT gives a disk a list of pieces of memory. A huge page is one piece, while the same bytes in small pages can
// be 512 pieces; a disk limits the number of pieces in a request.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

namespace cairn::os {

struct HugePages {
  bool private_memory = false;  ///< anonymous memory with MADV_HUGEPAGE gets huge pages
  bool shared_memory = false;   ///< memory files (memfd) with MADV_HUGEPAGE get huge pages

  friend bool operator==(const HugePages&, const HugePages&) = default;
};

/// Missing settings (a kernel without huge pages, /sys hidden) count as false.
HugePages huge_pages(const std::filesystem::path& settings = "/sys/kernel/mm/transparent_hugepage");

inline constexpr std::uint64_t kHugePageBytes = 2ULL << 20;

/// Maps a memory file (memfd), shared, at an address where a huge page may begin. Null, with errno, on failure.
std::byte* map_memory_file(int descriptor, std::uint64_t bytes);

/// Gives huge pages to each whole unit of 2 MiB in `memory`, a part of the mapping by map_memory_file(). This part
/// begins at `offset`, a multiple of 2 MiB, in the file. The content stays. Independent of the settings (MADV_COLLAPSE,
/// Linux 6.1), except that "deny" refuses. Returns the bytes in huge pages: 0 on older kernels, fewer than all if free
/// memory is fragmented. Other pages are allocated on use.
std::uint64_t make_pages_huge(int descriptor, std::uint64_t offset, std::span<std::byte> memory);

/// Whether make_pages_huge() works on this machine; tried once per process.
bool can_make_pages_huge();

/// Private memory of this process whose pages are allocated at once, as huge pages where possible: the first copy into
/// it is as fast as later ones. Children of fork() do not get this memory.
class PopulatedMemory {
 public:
  PopulatedMemory() = default;
  /// Throws Error(kIo) if the system does not have enough memory.
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
