// Small pieces that writing and reading share: files of a stored checkpoint as engine files, windows as operations.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "format/safetensors.hpp"
#include "io/engine.hpp"
#include "io/exchange.hpp"
#include "opening/open.hpp"
#include "plan/extents.hpp"
#include "plan/runs.hpp"

namespace cairn::checkpoint {

std::vector<std::uint64_t> file_sizes(const format::StoredCheckpoint& stored);
/// To be written.
std::vector<io::EngineFile> engine_files(const std::filesystem::path& directory,
                                         const format::StoredCheckpoint& stored);
/// To be read.
std::vector<io::EngineFile> engine_files(const opening::OpenCheckpoint& checkpoint);

/// Bytes that the largest of the windows needs in its buffer.
std::uint64_t largest_buffer(std::span<const plan::Window> windows);

/// Of the window with the most.
std::size_t most_parts(std::span<const plan::Window> windows);
/// Reads of the window, instead of what is in `ops`.
void put_read_ops(const io::WindowBuffer& window, std::vector<io::ReadOp>& ops);

}  // namespace cairn::checkpoint
