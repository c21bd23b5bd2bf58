#include "checkpoint/window_io.hpp"

#include <algorithm>

namespace cairn::checkpoint {

std::vector<std::uint64_t> file_sizes(const format::StoredCheckpoint& stored) {
  std::vector<std::uint64_t> sizes;
  for (const auto& file : stored.files) sizes.push_back(file.size_bytes);
  return sizes;
}

std::vector<io::EngineFile> engine_files(const std::filesystem::path& directory,
                                         const format::StoredCheckpoint& stored) {
  std::vector<io::EngineFile> files;
  for (const auto& file : stored.files) files.push_back({directory / file.name, file.size_bytes});
  return files;
}

std::vector<io::EngineFile> engine_files(const opening::OpenCheckpoint& checkpoint) {
  std::vector<io::EngineFile> files;
  for (const auto& file : checkpoint.stored.files) files.push_back({checkpoint.path_of(file.name), file.size_bytes});
  return files;
}

std::uint64_t largest_buffer(std::span<const plan::Window> windows) {
  std::uint64_t bytes = 0;
  for (const plan::Window& window : windows) bytes = std::max(bytes, window.buffer_bytes);
  return bytes;
}

std::size_t most_parts(std::span<const plan::Window> windows) {
  std::size_t most = 0;
  for (const plan::Window& window : windows) most = std::max(most, window.parts.size());
  return most;
}

void put_read_ops(const io::WindowBuffer& window, std::vector<io::ReadOp>& ops) {
  ops.clear();
  if (window.window == nullptr) return;
  for (std::size_t p = 0; p < window.window->parts.size(); ++p) {
    const plan::Extent& part = window.window->parts[p];
    ops.push_back({part.file, part.begin, window.buffer.subspan(window.window->offsets[p], part.end - part.begin)});
  }
}

}  // namespace cairn::checkpoint
