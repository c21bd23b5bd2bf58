#include "checkpoint/window_io.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "base/units.hpp"
#include "format/crc32c.hpp"

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

std::vector<const format::FileBlocks*> block_rows(const OpenCheckpoint& checkpoint) {
  std::vector<const format::FileBlocks*> rows(checkpoint.stored.files.size(), nullptr);
  if (!checkpoint.blocks) return rows;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    for (const auto& row : checkpoint.blocks->files) {
      if (row.name == checkpoint.stored.files[i].name) rows[i] = &row;
    }
  }
  return rows;
}

std::vector<std::string> tensors_in(const format::StoredCheckpoint& stored, std::uint32_t file, plan::ByteRange bytes) {
  std::vector<std::pair<std::uint64_t, std::string>> found;
  for (const auto& tensor : stored.tensors) {
    for (const auto& box : tensor.boxes) {
      if (box.file != file || box.offset_bytes >= bytes.end) continue;
      const std::uint64_t size = format::tensor_bytes(tensor.dtype, box.box.shape, tensor.name);
      if (size != 0 && box.offset_bytes + size > bytes.begin) found.emplace_back(box.offset_bytes, tensor.name);
    }
  }
  std::sort(found.begin(), found.end());
  std::vector<std::string> names;
  for (auto& [offset, name] : found) names.push_back(std::move(name));
  return names;
}

std::vector<std::string> tensors_in(const format::SafetensorsHeader& header, plan::ByteRange bytes) {
  std::vector<std::string> names;
  for (const auto& tensor : header.tensors) {
    const std::uint64_t begin = header.data_start + tensor.begin;
    const std::uint64_t end = header.data_start + tensor.end;
    if (begin < bytes.end && end > bytes.begin && begin != end) names.push_back(tensor.name);
  }
  return names;
}

std::string words_of(const BlockFault& fault) {
  constexpr std::size_t kShown = 4;
  std::string where = !fault.has_names            ? "of unknown tensors"
                      : fault.tensors.empty()     ? "in the header"
                      : fault.tensors.size() == 1 ? "tensor"
                                                  : "tensors";
  for (std::size_t i = 0; i < std::min(fault.tensors.size(), kShown); ++i) {
    where += fmt::format("{} '{}'", i == 0 ? "" : ",", base::printable(fault.tensors[i]));
  }
  if (fault.tensors.size() > kShown) where += fmt::format(" and {} more", fault.tensors.size() - kShown);
  return fmt::format("block {} (bytes {} to {}, {}) {}", fault.block, fault.bytes.begin, fault.bytes.end, where,
                     format::mismatch_words(fault.found, fault.written));
}

std::string message_of(const BlockFault& fault) {
  return fmt::format("'{}': {}: the file was damaged since", base::printable(fault.path.string()), words_of(fault));
}

}  // namespace cairn::checkpoint
