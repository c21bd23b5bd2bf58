#include "export/coding_items.hpp"

#include <algorithm>

#include "base/checked.hpp"
#include "codes/box_pieces.hpp"
#include "shard/box_math.hpp"

namespace cairn::checkpoint {
namespace {

/// The rows that share scales with those of the box.
Box with_whole_groups(Box box, std::uint64_t group_rows) {
  const std::uint64_t end = base::ceil_div(box.offset[0] + box.shape[0], group_rows) * group_rows;
  box.offset[0] = box.offset[0] / group_rows * group_rows;
  box.shape[0] = end - box.offset[0];
  return box;
}

/// Deals the memory of a region to items, in the order of its boxes' bytes.
class RegionFiller {
 public:
  RegionFiller(const PartOfPair& part, const WindowRegion& region, std::vector<CodingItem>& out)
      : part_(part), region_(region), out_(out) {}

  /// The next `bytes` of the region's boxes are those of `box` from `before` on.
  void add(const Box& box, std::uint64_t before, std::uint64_t bytes) {
    const std::uint64_t begin = std::max(at_, region_.skip_bytes);
    const std::uint64_t end = std::min(at_ + bytes, region_.skip_bytes + region_.memory.size());
    if (begin < end) {
      const auto memory = region_.memory.subspan(begin - region_.skip_bytes, end - begin);
      out_.push_back({part_, box, memory, before + begin - at_});
    }
    at_ += bytes;
  }

 private:
  PartOfPair part_;
  const WindowRegion& region_;
  std::vector<CodingItem>& out_;
  std::uint64_t at_ = 0;
};

/// Codes in blocks of the flattened tensor: `begin` and `end` are bytes of the part.
void add_blocks(const CodedTensor& tensor, std::uint64_t begin, std::uint64_t end, std::uint64_t limit,
                RegionFiller& filler) {
  const std::uint64_t block_bytes = tensor.parts[0].shape.back();
  const std::uint64_t block_elements = tensor.codec->traits().block_elements;
  const quant::Shape view = tensor.codec->view(tensor.source.shape);
  const std::uint64_t all = shard::elements_of(view);
  const std::uint64_t step = std::max<std::uint64_t>(limit / block_elements, 1);
  for (std::uint64_t block = begin / block_bytes; block * block_bytes < end; block += step) {
    const std::uint64_t last = std::min(block + step, base::ceil_div(end, block_bytes));
    std::uint64_t from = block * block_bytes;  // of the box's first byte in the part
    for (const Box& box :
         shard::boxes_of_flat_range(view, block * block_elements, std::min(last * block_elements, all))) {
      const std::uint64_t bytes = base::ceil_div(shard::elements_of(box), block_elements) * block_bytes;
      const std::uint64_t first = std::max(from, begin);
      filler.add(box, first - from, std::min(from + bytes, end) - first);
      from += bytes;
    }
  }
}

}  // namespace

void add_items(const CodedTensor& tensor, const PartOfPair& part, const WindowRegion& region, std::uint64_t limit,
               std::vector<CodingItem>& out) {
  RegionFiller filler(part, region, out);
  const quant::Part& stored = tensor.parts[part.part];
  const quant::Traits& traits = tensor.codec->traits();
  if (traits.cut == quant::Cut::kWholeBlocks) {
    const std::uint64_t begin = shard::flat_index(stored.shape, region.boxes.front().offset);
    return add_blocks(tensor, begin, begin + region.loaded_bytes, limit, filler);
  }
  const std::uint64_t rows = std::max<std::uint64_t>(traits.group_rows, 1);
  const bool is_scale = stored.role == quant::Role::kScales;
  const std::uint64_t element_bytes = bits_of(stored.dtype) / 8;
  for (const Box& wanted : region.boxes) {
    for_each_piece(wanted, is_scale ? limit / rows : limit, [&](Box box) {
      const std::uint64_t bytes = shard::elements_of(box) * element_bytes;
      if (is_scale) {
        box.offset[0] *= rows;
        box.shape[0] *= rows;
        return filler.add(box, 0, bytes);
      }
      const Box whole = with_whole_groups(box, rows);
      const std::uint64_t row_bytes = shard::elements_of(box) / box.shape[0] * element_bytes;
      filler.add(whole, (box.offset[0] - whole.offset[0]) * row_bytes, bytes);
    });
  }
}

}  // namespace cairn::checkpoint
