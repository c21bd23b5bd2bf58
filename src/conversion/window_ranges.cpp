#include "conversion/window_ranges.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/checked.hpp"
#include "codes/decode_pieces.hpp"
#include "format/safetensors.hpp"
#include "quant/codec.hpp"
#include "shard/box_math.hpp"

namespace cairn::conversion {
namespace {

std::vector<Box> shifted(std::vector<Box> boxes, const Box& origin) {
  for (Box& box : boxes) {
    for (std::size_t d = 0; d < box.offset.size(); ++d) box.offset[d] += origin.offset[d];
  }
  return boxes;
}

}  // namespace

std::uint64_t cut_step(DType dtype, std::span<const std::uint64_t> shape) {
  std::uint64_t slice = 1;  // elements for each index along dimension d
  for (std::size_t d = shape.size(); d-- > 0;) {
    const std::uint64_t slices = 8 / std::gcd(std::uint64_t{8}, slice % 8 * bits_of(dtype));  // that fill whole bytes
    if (shape[d] % slices == 0) return std::max<std::uint64_t>(slice * slices, 1);
    slice *= shape[d];
  }
  return slice;
}

LayoutIndex::LayoutIndex(const plan::FileLayout& layout) : layout_(layout) {
  const auto& tensors = layout.stored.tensors;
  for (std::uint32_t t = 0; t < tensors.size(); ++t) {
    for (std::uint32_t s = 0; s < tensors[t].boxes.size(); ++s) {
      const auto& stored = tensors[t].boxes[s];
      const std::uint64_t bytes = format::tensor_bytes(tensors[t].dtype, stored.box.shape, tensors[t].name);
      if (bytes != 0) places_.push_back({stored.file, stored.offset_bytes, stored.offset_bytes + bytes, t, s});
    }
  }
  std::sort(places_.begin(), places_.end(),
            [](const Place& a, const Place& b) { return std::pair(a.file, a.begin) < std::pair(b.file, b.begin); });
}

std::vector<TensorRange> LayoutIndex::ranges(const plan::Window& window) const {
  std::vector<TensorRange> out;
  for (std::size_t p = 0; p < window.parts.size(); ++p) add_ranges(window.parts[p], window.offsets[p], out);
  return out;
}

void LayoutIndex::add_ranges(const plan::Extent& part, std::uint64_t window_offset,
                             std::vector<TensorRange>& out) const {
  auto place = std::upper_bound(places_.begin(), places_.end(), part, [](const plan::Extent& p, const Place& q) {
    return std::pair(p.file, p.begin) < std::pair(q.file, q.end);
  });
  for (; place != places_.end() && place->file == part.file && place->begin < part.end; ++place) {
    const auto& tensor = layout_.stored.tensors[place->tensor];
    const Box& box = tensor.boxes[place->stored].box;
    const std::uint64_t begin = std::max(place->begin, part.begin);
    const std::uint64_t end = std::min(place->end, part.end);
    const std::uint64_t step = cut_step(tensor.dtype, box.shape);
    const std::uint64_t step_bytes = step * bits_of(tensor.dtype) / 8;
    const std::uint64_t first = (begin - place->begin) / step_bytes;
    const std::uint64_t last = base::ceil_div(end - place->begin, step_bytes);
    TensorRange range;
    range.tensor = place->tensor;
    range.boxes = shifted(shard::boxes_of_flat_range(box.shape, first * step, last * step), box);
    range.window_offset = window_offset + begin - part.begin;
    range.bytes = end - begin;
    range.skip_bytes = begin - place->begin - first * step_bytes;
    range.loaded_bytes = (last - first) * step_bytes;
    out.push_back(std::move(range));
  }
}

namespace {

/// The box, grown to all rows that share scales with its rows.
Box with_whole_groups(Box box, std::uint64_t group_rows) {
  const std::uint64_t end = base::ceil_div(box.offset[0] + box.shape[0], group_rows) * group_rows;
  box.offset[0] = box.offset[0] / group_rows * group_rows;
  box.shape[0] = end - box.offset[0];
  return box;
}

/// Assigns the bytes of a range to items, in the order of the range's boxes.
class RangeFiller {
 public:
  RangeFiller(const PartOfPair& part, const TensorRange& range, std::vector<CodingItem>& out)
      : part_(part), range_(range), out_(out) {}

  /// Assigns the next `bytes` bytes of the range's boxes to `box`, from byte `before` of its codes on.
  void add(const Box& box, std::uint64_t before, std::uint64_t bytes) {
    const std::uint64_t begin = std::max(at_, range_.skip_bytes);
    const std::uint64_t end = std::min(at_ + bytes, range_.skip_bytes + range_.bytes);
    if (begin < end) {
      const std::uint64_t window_offset = range_.window_offset + begin - range_.skip_bytes;
      out_.push_back({part_, box, window_offset, end - begin, before + begin - at_});
    }
    at_ += bytes;
  }

 private:
  PartOfPair part_;
  const TensorRange& range_;
  std::vector<CodingItem>& out_;
  std::uint64_t at_ = 0;
};

/// Adds codes that consist of blocks. `begin` and `end` are byte offsets in the part.
void add_blocks(const codes::CodedTensor& tensor, std::uint64_t begin, std::uint64_t end, std::uint64_t limit,
                RangeFiller& filler) {
  const std::uint64_t block_bytes = tensor.parts[0].shape.back();
  const std::uint64_t block_elements = tensor.codec->traits().block_elements;
  const quant::Shape view = tensor.codec->view(tensor.source.shape);
  const std::uint64_t all = shard::elements_of(view);
  const std::uint64_t step = std::max<std::uint64_t>(limit / block_elements, 1);
  for (std::uint64_t block = begin / block_bytes; block * block_bytes < end; block += step) {
    const std::uint64_t last = std::min(block + step, base::ceil_div(end, block_bytes));
    std::uint64_t from = block * block_bytes;  // offset of the box's first byte in the part
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

void add_items(const codes::CodedTensor& tensor, const PartOfPair& part, const TensorRange& range, std::uint64_t limit,
               std::vector<CodingItem>& out) {
  RangeFiller filler(part, range, out);
  const quant::Part& stored = tensor.parts[part.part];
  const quant::Traits& traits = tensor.codec->traits();
  if (traits.cut == quant::Cut::kWholeBlocks) {
    const std::uint64_t begin = shard::flat_index(stored.shape, range.boxes.front().offset);
    return add_blocks(tensor, begin, begin + range.loaded_bytes, limit, filler);
  }
  const std::uint64_t rows = std::max<std::uint64_t>(traits.group_rows, 1);
  const bool is_scale = stored.role == quant::Role::kScales;
  const std::uint64_t element_bytes = bits_of(stored.dtype) / 8;
  for (const Box& wanted : range.boxes) {
    codes::for_each_piece(wanted, is_scale ? limit / rows : limit, [&](Box box) {
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

}  // namespace cairn::conversion
