// Which replica provides which part of a box.
#include <algorithm>
#include <optional>
#include <tuple>

#include "base/checked.hpp"
#include "base/mix.hpp"
#include "plan/coverage.hpp"
#include "plan/runs.hpp"
#include "shard/box_math.hpp"

namespace cairn::plan {
namespace {

/// Elements between which a packed dtype may be cut: its smallest whole number of bytes.
std::uint64_t elements_per_cut(DType dtype) {
  switch (bits_of(dtype) % 8) {
    case 4: return 2;
    case 6: return 4;
    default: return 1;
  }
}

/// `count` parts of nearly equal length along dimension d, or nothing when it is too short or a cut would fall inside a
/// byte.
std::optional<std::vector<Box>> cut_along(const CatalogTensor& tensor, const Box& box, std::size_t d,
                                          std::uint64_t count) {
  const std::uint64_t unit = elements_per_cut(tensor.dtype);
  const std::uint64_t units = box.shape[d] / unit;
  if (units < count) return std::nullopt;
  std::vector<Box> parts;
  std::uint64_t begin = 0;
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::uint64_t whole_units = (i + 1) * (units / count) + std::min(i + 1, units % count);
    const std::uint64_t end = i + 1 == count ? box.shape[d] : whole_units * unit;
    Box part = box;
    part.offset[d] += begin;
    part.shape[d] = end - begin;
    if (unit > 1 && !is_byte_aligned(tensor.dtype, {0, 0, shard::whole(tensor.shape)}, box, part)) return std::nullopt;
    parts.push_back(std::move(part));
    begin = end;
  }
  return parts;
}

/// One part per holder when the box is worth it, else one part.
std::vector<Box> shares_of(const CatalogTensor& tensor, const Box& box, std::uint64_t holders,
                           std::uint64_t share_bytes) {
  const std::uint64_t elements = shard::elements_of(box);
  const std::uint64_t bytes = elements / 8 * bits_of(tensor.dtype) + elements % 8 * bits_of(tensor.dtype) / 8;
  if (holders > 1 && bytes / holders >= share_bytes) {
    for (std::size_t d = 0; d < box.shape.size(); ++d) {
      if (auto parts = cut_along(tensor, box, d, holders)) return std::move(*parts);
    }
  }
  return {box};
}

}  // namespace

std::vector<Piece> provide(const CatalogTensor& tensor, std::vector<Piece> claims, std::uint64_t share_bytes,
                           std::uint64_t salt) {
  const std::uint32_t number = claims.empty() ? 0 : claims.front().tensor;
  const std::vector<ReplicaGroup> groups = check_coverage(tensor, std::move(claims));
  std::vector<Piece> out;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    const ReplicaGroup& group = groups[g];
    std::vector<Box> parts = shares_of(tensor, group.box, group.holders.size(), share_bytes);
    if (parts.size() == 1) {
      const auto& chosen = group.holders[base::split_mix64(base::split_mix64(salt) ^ g) % group.holders.size()];
      out.push_back({number, chosen.local, chosen.rank, std::move(parts.front())});
      continue;
    }
    for (std::size_t i = 0; i < parts.size(); ++i) {
      out.push_back({number, group.holders[i].local, group.holders[i].rank, std::move(parts[i])});
    }
  }
  std::sort(out.begin(), out.end(), [](const Piece& a, const Piece& b) {
    return std::tie(a.rank, a.local, a.box.offset, a.box.shape) < std::tie(b.rank, b.local, b.box.offset, b.box.shape);
  });
  return out;
}

}  // namespace cairn::plan
