// What this machine remembers of files: their pages in its page cache. A read that must show what storage holds asks for
// them to be forgotten, and counts what is left: what was asked for is no proof.
#pragma once

#include <cstdint>

#include "os/file.hpp"

namespace cairn::os {

/// Writes back what is dirty of a file, and asks the kernel to forget its pages in [offset, offset + bytes). Returns how many of
/// these bytes are in the page cache all the same; all of them where the kernel does not tell: it tells owners of a file, and
/// who may write it.
std::uint64_t drop_cached(const File& file, std::uint64_t offset, std::uint64_t bytes);

/// Asks the kernel to read these bytes into the page cache, and does not wait. No promise.
void read_ahead(const File& file, std::uint64_t offset, std::uint64_t bytes);

}  // namespace cairn::os
