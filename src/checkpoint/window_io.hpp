// Helpers for writing and reading: files of a stored checkpoint as engine files, a window's reads, and sizes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

#include "io/engine.hpp"
#include "io/exchange.hpp"
#include "opening/open.hpp"
#include "plan/extents.hpp"
#include "plan/runs.hpp"

namespace cairn::checkpoint {

std::vector<std::uint64_t> file_sizes(const format::StoredCheckpoint& stored);
/// For writing.
std::vector<io::EngineFile> engine_files(const std::filesystem::path& directory,
                                         const format::StoredCheckpoint& stored);
/// For reading.
std::vector<io::EngineFile> engine_files(const opening::OpenCheckpoint& checkpoint);

/// Buffer bytes of the largest window.
std::uint64_t largest_buffer(std::span<const plan::Window> windows);

/// Number of parts of the window that has the most parts.
std::size_t most_parts(std::span<const plan::Window> windows);
/// Replaces `ops` with the reads of the window.
void put_read_ops(const io::WindowBuffer& window, std::vector<io::ReadOp>& ops);

}  // namespace cairn::checkpoint
