// Are reads honest? Files that were just written lie in the page cache, and reading them measures memory.
//
// Before a load the pages are dropped, and then counted: what is reported is what was found, not what was tried. What a
// storage server or a virtual disk's host keeps is out of reach.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace cairn::bench {

/// Rank-local. Asks the kernel of this node to drop the pages of fsynced files (posix_fadvise).
void drop_pages(std::span<const std::filesystem::path> files);

/// Rank-local; needs root. Asks the kernel of this node to drop all clean pages of all files.
void drop_all_pages();

/// Rank-local. Has `bytes` of free memory used once, so that the next who allocates them finds pages that the machine
/// under this one has given already: a virtual machine gives free memory back, and may take as long to get a page as to
/// fill twenty. Before writes to a file system in memory, so that all begin alike. The pages are small ones, and what
/// is free afterwards lies scattered. Throws Error(kIo) when there is too little.
void touch_free_memory(std::uint64_t bytes);

/// Rank-local. Share of the files' bytes that lie in this node's page cache (mincore): 0 to 1. 0 for no bytes.
double cached_share(std::span<const std::filesystem::path> files);

/// "dropped" when at most 1 % is cached; "defeated by size" when the bytes are three times the memory of the nodes or
/// more; else "warm cache".
std::string cache_label(double cached_share, double bytes, double memory_bytes);

/// Rank-local. Regular files in the directory, sorted.
std::vector<std::filesystem::path> files_in(const std::filesystem::path& directory);

}  // namespace cairn::bench
