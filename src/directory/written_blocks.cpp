#include "directory/written_blocks.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "base/units.hpp"
#include "format/crc32c.hpp"

namespace cairn::checkpoint {

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
