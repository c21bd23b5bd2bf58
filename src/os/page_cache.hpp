// The page cache of files. A read that must show the content of storage asks the kernel to drop the pages, and counts
// the pages that remain, because the request alone proves nothing.
#pragma once

#include <cstdint>

#include "os/file.hpp"

namespace cairn::os {

/// Writes back dirty pages of a file, and asks the kernel to drop its pages in [offset, offset + bytes). Returns the
/// number of these bytes that are still in the page cache, or all of them if the kernel does not tell. The kernel tells
/// only the file's owner and processes that may write to the file.
std::uint64_t drop_cached(const File& file, std::uint64_t offset, std::uint64_t bytes);

/// Asks the kernel to read [offset, offset + bytes) into the page cache; does not wait, and guarantees nothing.
void read_ahead(const File& file, std::uint64_t offset, std::uint64_t bytes);

}  // namespace cairn::os
