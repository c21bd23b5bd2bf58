#include "interop/paddle/copies.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "quant/cast.hpp"
#include "shard/box_math.hpp"

namespace cairn::interop {
namespace {

constexpr std::uint64_t kPieceBytes = 1 << 20;
constexpr std::uint64_t kSmallBytes = 64 << 10;  // tensors up to this size are compared as a whole
constexpr std::uint64_t kSampleBytes = 4 << 10;
constexpr std::size_t kMostOpen = 32;

using Pieces = std::vector<std::pair<std::uint64_t, std::uint64_t>>;  // offset and size of whole elements

Pieces pieces_of(std::uint64_t bytes, CopyComparer::Look look) {
  if (look == CopyComparer::Look::kSamples && bytes > kSmallBytes) {
    const std::uint64_t middle = bytes / 2 / kSampleBytes * kSampleBytes;
    return {{0, kSampleBytes}, {middle, kSampleBytes}, {bytes - kSampleBytes, kSampleBytes}};
  }
  Pieces out;
  for (std::uint64_t at = 0; at < bytes; at += kPieceBytes) out.emplace_back(at, std::min(kPieceBytes, bytes - at));
  return out;
}

bool is_uniform(std::span<const std::byte> bytes, std::span<const std::byte> element) {
  for (std::size_t at = 0; at < bytes.size(); at += element.size()) {
    if (!std::ranges::equal(bytes.subspan(at, element.size()), element)) return false;
  }
  return true;
}

}  // namespace

const base::ByteSource& CopyComparer::source_of(const std::string& file) {
  const auto known = open_.find(file);
  if (known != open_.end()) return known->second;
  if (open_.size() == kMostOpen) open_.clear();
  return open_.emplace(file, reading_.open(file)).first->second;
}

Copies CopyComparer::compare(std::span<const Fragment> fragments, Look look) {
  const auto is_outlined = [&](const Fragment& fragment) {
    return reading_.directory().outlined.contains(fragment.file->name);
  };
  if (std::ranges::any_of(fragments, is_outlined)) return Copies::kUnknown;
  const format::TensorEntry& entry = *fragments.front().entry;
  const std::uint64_t size = entry.end - entry.begin;
  const std::uint64_t element_bytes = std::max<std::uint64_t>(bits_of(entry.dtype) / 8, 1);
  bool uniform = true;
  base::Bytes element;
  const auto read = [&](const Fragment& fragment, std::uint64_t offset, base::Bytes& to) {
    const base::ByteSource& source = source_of(fragment.file->name);
    if (!source.read) return false;
    source.read(to, fragment.file->header->data_start + fragment.entry->begin + offset);
    return true;
  };
  for (const auto& [offset, bytes] : pieces_of(size, look)) {
    base::Bytes first(bytes);
    base::Bytes other(bytes);
    if (!read(fragments.front(), offset, first)) return Copies::kUnknown;
    for (const Fragment& fragment : fragments.subspan(1)) {
      if (!read(fragment, offset, other)) return Copies::kUnknown;
      if (first != other) return Copies::kDiffer;
    }
    if (element.empty()) element.assign(first.begin(), first.begin() + static_cast<std::ptrdiff_t>(element_bytes));
    uniform = uniform && is_uniform(first, element);
  }
  return uniform ? Copies::kUniform : Copies::kAlike;
}

bool CopyComparer::is_rounded(const format::PlacedTensor& master, const format::PlacedTensor& weight, bool is_turned) {
  constexpr std::uint64_t kMostElements = 64;
  if (weight.in_parts || master.dtype != DType::kF32 || !quant::can_cast(DType::kF32, weight.dtype)) return true;
  const auto read = [&](std::uint32_t file, std::uint64_t offset, std::span<std::byte> to) {
    const auto name = std::next(reading_.directory().safetensors.begin(), file);
    const base::ByteSource& source = source_of(name->first);
    if (source.read) source.read(to, offset);
    return static_cast<bool>(source.read);
  };
  const std::uint64_t elements = shard::elements_of(master.shape);
  const std::uint64_t count = std::min(elements, kMostElements);
  const std::size_t bytes = bits_of(weight.dtype) / 8;
  for (std::uint64_t i = 0; i < count; ++i) {
    std::uint64_t flat = elements / count * i + i * (elements % count) / count;
    std::vector<std::uint64_t> index(master.shape.size());
    for (std::size_t d = index.size(); d-- > 0; flat /= master.shape[d]) index[d] = flat % master.shape[d];
    const Box element{index, std::vector<std::uint64_t>(index.size(), 1)};
    const auto part = std::ranges::find_if(master.boxes, [&](const format::StoredBox& stored) {
      return shard::intersect(stored.box, element).has_value();
    });
    if (part == master.boxes.end()) continue;
    std::vector<std::uint64_t> rows = part->box.shape;
    if (!rows.empty()) rows.back() = format::stored_row_elems(*part);
    std::vector<std::uint64_t> in_part = index;
    for (std::size_t d = 0; d < index.size(); ++d) in_part[d] -= part->box.offset[d];
    if (is_turned) std::ranges::reverse(index);
    std::array<std::byte, sizeof(float)> value{};
    std::array<std::byte, sizeof(float)> rounded{};
    std::array<std::byte, sizeof(float)> expected{};
    const std::uint64_t at_weight = weight.offset_bytes + shard::flat_index(weight.shape, index) * bytes;
    if (!read(part->file, part->offset_bytes + shard::flat_index(rows, in_part) * sizeof(float), value) ||
        !read(weight.file, at_weight, std::span(expected).first(bytes))) {
      return true;
    }
    quant::cast_values(DType::kF32, value, weight.dtype, std::span(rounded).first(bytes));
    if (rounded != expected) return false;
  }
  return true;
}

}  // namespace cairn::interop
