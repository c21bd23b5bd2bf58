// Small pieces that save, load and verify share: files of a stored checkpoint as engine files, windows as operations.
#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "directory/open.hpp"
#include "format/safetensors.hpp"
#include "io/engine.hpp"
#include "io/exchange.hpp"
#include "plan/extents.hpp"
#include "plan/runs.hpp"

namespace cairn::checkpoint {

std::vector<std::uint64_t> file_sizes(const format::StoredCheckpoint& stored);
std::vector<io::EngineFile> engine_files(const std::filesystem::path& directory,
                                         const format::StoredCheckpoint& stored);

/// Bytes that the largest of the windows needs in its buffer.
std::uint64_t largest_buffer(std::span<const plan::Window> windows);

/// Of the window with the most.
std::size_t most_parts(std::span<const plan::Window> windows);
/// Reads of the window, instead of what is in `ops`.
void put_read_ops(const io::WindowBuffer& window, std::vector<io::ReadOp>& ops);
/// Writes of the window, without the first `head_bytes(file)` bytes of each file, instead of what is in `ops`.
template <class HeadBytes>
void put_write_ops(const io::WindowBuffer& window, const HeadBytes& head_bytes, std::vector<io::WriteOp>& ops) {
  ops.clear();
  if (window.window == nullptr) return;
  for (std::size_t p = 0; p < window.window->parts.size(); ++p) {
    const plan::Extent& part = window.window->parts[p];
    const std::uint64_t begin = std::max<std::uint64_t>(part.begin, head_bytes(part.file));
    if (begin >= part.end) continue;
    const std::uint64_t at = window.window->offsets[p] + begin - part.begin;
    ops.push_back({part.file, begin, window.buffer.subspan(at, part.end - begin)});
  }
}

}  // namespace cairn::checkpoint
