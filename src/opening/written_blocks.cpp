#include "opening/written_blocks.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <string_view>

#include "base/text.hpp"
#include "cairn/error.hpp"
#include "format/crc32c.hpp"

namespace cairn::opening {

WrittenBlocks::WrittenBlocks(const OpenCheckpoint& checkpoint)
    : checkpoint_(checkpoint), rows_(checkpoint.stored.files.size(), nullptr) {
  if (!checkpoint.blocks) return;
  std::map<std::string_view, const format::BlockRow*> rows;
  for (const auto& row : checkpoint.blocks->files()) rows.emplace(row.name(), &row);
  for (std::size_t i = 0; i < rows_.size(); ++i) {
    const auto at = rows.find(checkpoint.stored.files[i].name);
    if (at != rows.end()) rows_[i] = at->second;
  }
}

void WrittenBlocks::check(const plan::FileRange& bytes, std::uint32_t found) const {
  const std::uint64_t block = bytes.begin / checkpoint_.blocks->block_bytes();
  const std::uint32_t written = rows_[bytes.file]->crc(block);
  if (found == written) return;
  const BlockFault fault{checkpoint_.path_of(checkpoint_.stored.files[bytes.file].name),
                         block,
                         bytes,
                         found,
                         written,
                         tensors_in(checkpoint_.stored, bytes),
                         true};
  throw Error(ErrorKind::kIntegrity, message_of(fault), {0, fault.path.native()});
}

std::uint64_t WrittenBlocks::check(const plan::Window& window, std::span<const std::byte> buffer) const {
  if (!has_any()) return 0;
  const std::uint64_t block_bytes = checkpoint_.blocks->block_bytes();
  for (std::size_t p = 0; p < window.parts.size(); ++p) {
    const plan::Extent& part = window.parts[p];
    std::uint64_t at = window.offsets[p];
    for (std::uint64_t begin = part.begin; begin < part.end;) {
      const std::uint64_t end = std::min((begin / block_bytes + 1) * block_bytes, part.end);
      check({part.file, begin, end}, format::crc32c(buffer.subspan(at, end - begin)));
      at += end - begin;
      begin = end;
    }
  }
  return window.bytes;
}

std::vector<std::string> tensors_in(const plan::PackedCheckpoint& stored, const plan::FileRange& bytes) {
  std::vector<std::pair<std::uint64_t, std::string>> found;
  const auto add = [&](std::string_view name, std::uint64_t begin, std::uint64_t size) {
    if (begin < bytes.end && size != 0 && begin + size > bytes.begin) found.emplace_back(begin, name);
  };
  for (auto cursor = stored.tensors.cursor(); cursor.next();) {
    const format::PlacedTensor tensor = cursor.placed();
    if (!tensor.in_parts && tensor.file == bytes.file) add(tensor.name, tensor.offset_bytes, cursor.size_bytes());
    for (const auto& box : tensor.boxes) {
      if (box.file != bytes.file) continue;
      add(tensor.name, box.offset_bytes, format::tensor_bytes(tensor.dtype, box.box.shape, tensor.name));
    }
  }
  std::sort(found.begin(), found.end());
  std::vector<std::string> names;
  for (auto& [offset, name] : found) names.push_back(std::move(name));
  return names;
}

std::vector<std::string> tensors_in(const format::SafetensorsHeader& header, const plan::FileRange& bytes) {
  std::vector<std::string> names;
  for (const auto& tensor : header.tensors) {
    const std::uint64_t begin = header.data_start + tensor.begin;
    const std::uint64_t end = header.data_start + tensor.end;
    if (begin < bytes.end && end > bytes.begin && begin != end) names.emplace_back(tensor.name);
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

}  // namespace cairn::opening
