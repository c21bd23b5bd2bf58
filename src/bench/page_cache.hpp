// Makes reads honest: new files are in the page cache, and reading them from there would measure memory.
//
// Before a load the pages are dropped, and the remaining pages are counted: results report the count, not the attempt.
// Caches of a storage server or of a virtual disk's host cannot be dropped.
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

/// Rank-local. Uses `bytes` of free memory once, so that a virtual machine's host has provided the pages. A virtual
/// machine gives free memory back; getting a page again can take as long as filling twenty. Called before timed work
/// (prepare_memory()), so that all of it starts under equal conditions. Uses small pages, and leaves free memory
/// scattered. Throws Error(kIo) if memory is short.
void touch_free_memory(std::uint64_t bytes);

/// Rank-local. Share of the files' pages that this node's page cache holds (mincore), from 0 to 1; 0 without a page.
double cached_share(std::span<const std::filesystem::path> files);

/// "dropped" if at most 1 % is cached; "defeated by size" if the bytes are at least three times the nodes' memory;
/// otherwise "warm cache".
std::string cache_label(double cached_share, double bytes, double memory_bytes);

/// Rank-local. The regular files in the directory, sorted.
std::vector<std::filesystem::path> files_in(const std::filesystem::path& directory);

}  // namespace cairn::bench
