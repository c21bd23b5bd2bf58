// Transfers: parts of memory x stored boxes x extents, each step by search instead of by trying all pairs.
//
// A tensor of a sharded checkpoint can have thousands of stored boxes; BoxIndex orders them along one dimension.
#include "plan/transfer.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <tuple>

#include "base/checked.hpp"
#include "base/units.hpp"
#include "plan/box_index.hpp"
#include "shard/box_math.hpp"

namespace cairn::plan {
namespace {

struct Found {
  std::uint32_t stored = 0;
  Box region;
};

const format::StoredTensor& tensor_of(const format::StoredCheckpoint& stored, std::uint32_t tensor) {
  if (tensor < stored.tensors.size()) return stored.tensors[tensor];
  throw Error(ErrorKind::kInternal,
              fmt::format("transfer of tensor number {} of a checkpoint that has {}", tensor, stored.tensors.size()));
}

void check_part(const MemoryPart& part, const format::StoredTensor& tensor) {
  if (!shard::fits(part.memory_box, tensor.shape) || part.part.shape.size() != tensor.shape.size() ||
      shard::intersect(part.part, part.memory_box) != part.part) {
    throw Error(ErrorKind::kInternal,
                fmt::format("tensor '{}' (section {}): part {} of memory box {} does not fit the tensor {}",
                            base::printable(tensor.name), base::printable(tensor.section), shard::to_string(part.part),
                            shard::to_string(part.memory_box), shard::to_string(shard::whole(tensor.shape))));
  }
}

void check_alignment(const RunSpace& space, const format::StoredTensor& tensor) {
  if (is_byte_aligned(space)) return;
  throw Error(
      ErrorKind::kUsage,
      fmt::format("tensor '{}' (section {}): elements {} of dtype {} begin or end inside a byte of memory box {}; cut "
                  "packed tensors where a whole number of bytes ends",
                  base::printable(tensor.name), base::printable(tensor.section), shard::to_string(space.region),
                  name_of(tensor.dtype), shard::to_string(space.memory_box)));
}

/// Ranks whose extents hold bytes of the region, ascending.
std::vector<int> owners_of(const RunSpace& space, const format::StoredTensor& tensor, std::uint32_t file,
                           const ExtentMap& extents, OutsideExtents outside) {
  const ByteRange span = file_span(space);
  std::vector<int> owners;
  std::uint64_t covered = 0;
  for (const Extent& extent : extents.covering(file, span.begin, span.end)) {
    const std::uint64_t bytes = run_bytes(space, extent.begin, extent.end);
    covered += bytes;
    if (bytes != 0 && (owners.empty() || owners.back() != extent.rank)) owners.push_back(extent.rank);
  }
  const std::uint64_t expected = run_bytes(space, span.begin, span.end);
  if (covered != expected && outside == OutsideExtents::kIsError) {
    throw Error(
        ErrorKind::kInternal,
        fmt::format("tensor '{}' (section {}): {} of the {} bytes of elements {} lie in no extent of file number {}",
                    base::printable(tensor.name), base::printable(tensor.section), expected - covered, expected,
                    shard::to_string(space.region), file));
  }
  return owners;
}

/// Parts x stored boxes; `visit(transfer, space)` with an extent_rank of 0. Parts of a tensor follow each other.
template <class Visit>
void for_each_region(int rank, std::span<const MemoryPart> parts, const format::StoredCheckpoint& stored,
                     const Visit& visit) {
  std::vector<std::size_t> order(parts.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return parts[a].tensor < parts[b].tensor; });
  BoxIndex index;
  std::size_t indexed = stored.tensors.size();
  for (const std::size_t i : order) {
    const MemoryPart& part = parts[i];
    const format::StoredTensor& tensor = tensor_of(stored, part.tensor);
    if (shard::is_empty(part.part)) continue;
    check_part(part, tensor);
    if (indexed != part.tensor) {
      index = BoxIndex(tensor.boxes);
      indexed = part.tensor;
    }
    index.for_each_meeting(part.part, [&](std::uint32_t number, const Box& region) {
      Transfer transfer{rank, 0, part.tensor, number, part.local, part.memory_box, region};
      const RunSpace space = run_space(transfer, stored);
      check_alignment(space, tensor);
      visit(transfer, space);
    });
  }
}

}  // namespace

RunSpace run_space(const Transfer& transfer, const format::StoredCheckpoint& stored) {
  const format::StoredTensor& tensor = tensor_of(stored, transfer.tensor);
  if (transfer.stored >= tensor.boxes.size()) {
    throw Error(ErrorKind::kInternal, fmt::format("transfer of stored box number {} of tensor '{}', which has {}",
                                                  transfer.stored, base::printable(tensor.name), tensor.boxes.size()));
  }
  const format::StoredBox& box = tensor.boxes[transfer.stored];
  return {tensor.dtype, box.box, box.offset_bytes, transfer.memory_box, transfer.region};
}

std::vector<Transfer> transfers_of_memory(int rank, std::span<const MemoryPart> parts,
                                          const format::StoredCheckpoint& stored, const ExtentMap& extents,
                                          OutsideExtents outside) {
  std::vector<Transfer> out;
  for_each_region(rank, parts, stored, [&](Transfer& transfer, const RunSpace& space) {
    const format::StoredTensor& tensor = stored.tensors[transfer.tensor];
    for (const int owner : owners_of(space, tensor, tensor.boxes[transfer.stored].file, extents, outside)) {
      transfer.extent_rank = owner;
      out.push_back(transfer);
    }
  });
  std::sort(out.begin(), out.end(), [](const Transfer& a, const Transfer& b) {
    return std::tie(a.extent_rank, a.tensor, a.stored, a.local, a.region.offset, a.region.shape) <
           std::tie(b.extent_rank, b.tensor, b.stored, b.local, b.region.offset, b.region.shape);
  });
  return out;
}

std::vector<Transfer> regions_of_memory(int rank, std::span<const MemoryPart> parts,
                                        const format::StoredCheckpoint& stored) {
  std::vector<Transfer> out;
  for_each_region(rank, parts, stored, [&](const Transfer& transfer, const RunSpace&) { out.push_back(transfer); });
  return out;
}

}  // namespace cairn::plan
