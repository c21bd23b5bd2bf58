// Makes transfers: matches pieces of memory, stored boxes and extents by search instead of trying all pairs.
//
// A tensor of a sharded checkpoint can have thousands of stored boxes; BoxIndex orders them along one dimension.
#include "plan/transfers.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <numeric>
#include <tuple>

#include "base/checked.hpp"
#include "base/internal_error.hpp"
#include "base/text.hpp"
#include "cairn/error.hpp"
#include "shard/box_math.hpp"
#include "shard/box_sweep.hpp"

namespace cairn::plan {

BoxIndex::BoxIndex(std::span<const format::StoredBox> boxes) : boxes_(boxes), order_(boxes.size()) {
  base::narrow<std::uint32_t>(boxes.size(), "number of stored boxes of a tensor");
  std::iota(order_.begin(), order_.end(), 0U);
  if (boxes_.size() < 2 || boxes_.front().box.shape.empty()) return;
  dimension_ = shard::sweep_dimension(boxes_.size(), boxes_.front().box.shape.size(),
                                      [&](std::size_t i) -> const Box& { return boxes_[i].box; });
  const auto begin_of = [&](std::uint32_t i) { return boxes_[i].box.offset[dimension_]; };
  std::stable_sort(order_.begin(), order_.end(),
                   [&](std::uint32_t a, std::uint32_t b) { return begin_of(a) < begin_of(b); });
  largest_end_.reserve(order_.size());
  std::uint64_t largest = 0;
  for (const std::uint32_t i : order_) {
    largest = std::max(largest, begin_of(i) + boxes_[i].box.shape[dimension_]);
    largest_end_.push_back(largest);
  }
}

void BoxIndex::for_each_meeting(const Box& box, const std::function<void(std::uint32_t, const Box&)>& visit) const {
  std::size_t from = 0;
  std::size_t to = order_.size();
  if (!largest_end_.empty()) {
    const std::uint64_t begin = box.offset[dimension_];
    const std::uint64_t end = begin + box.shape[dimension_];
    from = static_cast<std::size_t>(std::upper_bound(largest_end_.begin(), largest_end_.end(), begin) -
                                    largest_end_.begin());
    to = static_cast<std::size_t>(
        std::partition_point(order_.begin(), order_.end(),
                             [&](std::uint32_t i) { return boxes_[i].box.offset[dimension_] < end; }) -
        order_.begin());
  }
  for (std::size_t i = from; i < to; ++i) {
    if (const auto common = shard::intersect(box, boxes_[order_[i]].box)) visit(order_[i], *common);
  }
}

namespace {

const format::StoredTensor& tensor_of(const format::StoredCheckpoint& stored, std::uint32_t tensor) {
  if (tensor < stored.tensors.size()) return stored.tensors[tensor];
  throw base::internal_error(
      fmt::format("transfer of tensor number {} of a checkpoint that has {}", tensor, stored.tensors.size()));
}

const MemoryBox& memory_box_of(const Piece& piece, std::span<const MemoryBox> memory,
                               const format::StoredTensor& tensor) {
  if (piece.local >= memory.size()) {
    throw base::internal_error(fmt::format("tensor '{}' (section {}): a piece of memory box {} of {}",
                                           base::printable(tensor.name), base::printable(tensor.section), piece.local,
                                           memory.size()));
  }
  const Box& box = memory[piece.local].box;
  if (!shard::fits(box, tensor.shape) || piece.box.shape.size() != tensor.shape.size() ||
      shard::intersect(piece.box, box) != piece.box) {
    throw base::internal_error(
        fmt::format("tensor '{}' (section {}): part {} of memory box {} does not fit the tensor {}",
                    base::printable(tensor.name), base::printable(tensor.section), shard::to_string(piece.box),
                    shard::to_string(box), shard::to_string(shard::whole(tensor.shape))));
  }
  return memory[piece.local];
}

Runs aligned_runs(const format::StoredTensor& tensor, const format::StoredBox& stored, const MemoryBox& memory,
                  const Box& region) {
  if (is_byte_aligned(tensor.dtype, stored, memory.box, region)) {
    return runs_of(tensor.dtype, stored, memory, region);
  }
  throw Error(ErrorKind::kUsage,
              fmt::format("tensor '{}' (section {}): elements {} of dtype {} begin or end inside a byte of memory box "
                          "{}; cut packed tensors where a whole number of bytes ends",
                          base::printable(tensor.name), base::printable(tensor.section), shard::to_string(region),
                          name_of(tensor.dtype), shard::to_string(memory.box)));
}

/// The region of a tensor that lies in both a stored box and a memory box.
struct Common {
  const format::StoredTensor& tensor;
  const Box& region;
};

/// Ranks whose extents hold bytes of the runs, ascending.
std::vector<int> aggregators_of(const Runs& runs, const Common& common, const ExtentMap& extents,
                                OutsideExtents outside) {
  std::vector<int> aggregators;
  std::uint64_t covered = 0;
  for (const Extent& extent : extents.covering(runs.file, runs.file_begin, runs.file_end())) {
    const std::uint64_t bytes = runs.bytes_before(extent.end) - runs.bytes_before(extent.begin);
    covered += bytes;
    if (bytes != 0 && (aggregators.empty() || aggregators.back() != extent.rank)) aggregators.push_back(extent.rank);
  }
  if (covered != runs.bytes && outside == OutsideExtents::kIsError) {
    throw base::internal_error(
        fmt::format("tensor '{}' (section {}): {} of the {} bytes of elements {} lie in no extent of file number {}",
                    base::printable(common.tensor.name), base::printable(common.tensor.section), runs.bytes - covered,
                    runs.bytes, shard::to_string(common.region), runs.file));
  }
  return aggregators;
}

/// Calls visit(runs, common) for pieces x stored boxes, with file_rank 0, tensor by tensor.
template <class Visit>
void for_each_region(std::span<const Piece> pieces, std::span<const MemoryBox> memory,
                     const format::StoredCheckpoint& stored, const Visit& visit) {
  std::vector<std::size_t> order(pieces.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return pieces[a].tensor < pieces[b].tensor; });
  BoxIndex index;
  std::size_t indexed = stored.tensors.size();
  for (const std::size_t i : order) {
    const Piece& piece = pieces[i];
    const format::StoredTensor& tensor = tensor_of(stored, piece.tensor);
    if (shard::is_empty(piece.box)) continue;
    const MemoryBox& memory_box = memory_box_of(piece, memory, tensor);
    if (indexed != piece.tensor) {
      index = BoxIndex(tensor.boxes);
      indexed = piece.tensor;
    }
    index.for_each_meeting(piece.box, [&](std::uint32_t number, const Box& region) {
      Runs runs = aligned_runs(tensor, tensor.boxes[number], memory_box, region);
      runs.local = piece.local;
      runs.memory_rank = piece.rank;
      runs.memory = memory_box.memory;
      visit(runs, Common{tensor, region});
    });
  }
}

}  // namespace

std::vector<Runs> transfers_of_memory(std::span<const Piece> pieces, std::span<const MemoryBox> memory,
                                      const format::StoredCheckpoint& stored, const ExtentMap& extents,
                                      OutsideExtents outside) {
  std::vector<Runs> out;
  for_each_region(pieces, memory, stored, [&](Runs& runs, const Common& common) {
    for (const int aggregator : aggregators_of(runs, common, extents, outside)) {
      runs.file_rank = aggregator;
      out.push_back(runs);
    }
  });
  sort_transfers(out);
  return out;
}

void sort_transfers(std::vector<Runs>& transfers) {
  std::stable_sort(transfers.begin(), transfers.end(), [](const Runs& a, const Runs& b) {
    return std::tie(a.file_rank, a.file, a.file_begin, a.local, a.memory_begin) <
           std::tie(b.file_rank, b.file, b.file_begin, b.local, b.memory_begin);
  });
}

std::vector<Runs> regions_of_memory(std::span<const Piece> pieces, std::span<const MemoryBox> memory,
                                    const format::StoredCheckpoint& stored) {
  std::vector<Runs> out;
  for_each_region(pieces, memory, stored, [&](const Runs& runs, const Common&) { out.push_back(runs); });
  return out;
}

}  // namespace cairn::plan
