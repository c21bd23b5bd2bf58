#include "export/window_regions.hpp"

#include <algorithm>
#include <numeric>

#include "base/checked.hpp"
#include "format/safetensors.hpp"
#include "shard/box_math.hpp"

namespace cairn::checkpoint {
namespace {

/// Smallest number of elements that is a whole number of bytes, e.g. 2 for F4 and 4 for F6.
std::uint64_t group_elements(DType dtype) { return std::lcm<std::uint64_t>(8, bits_of(dtype)) / bits_of(dtype); }

std::vector<Box> shifted(std::vector<Box> boxes, const Box& origin) {
  for (Box& box : boxes) {
    for (std::size_t d = 0; d < box.offset.size(); ++d) box.offset[d] += origin.offset[d];
  }
  return boxes;
}

}  // namespace

WindowIndex::WindowIndex(const plan::FileLayout& layout) : layout_(layout) {
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

std::vector<WindowRegion> WindowIndex::regions(const io::WindowBuffer& window) const {
  std::vector<WindowRegion> out;
  if (window.window == nullptr) return out;
  for (std::size_t p = 0; p < window.window->parts.size(); ++p) {
    const plan::Extent& part = window.window->parts[p];
    add_regions(part, window.buffer.subspan(window.window->offsets[p], part.end - part.begin), out);
  }
  return out;
}

void WindowIndex::add_regions(const plan::Extent& part, std::span<std::byte> memory,
                              std::vector<WindowRegion>& out) const {
  auto place = std::upper_bound(places_.begin(), places_.end(), part, [](const plan::Extent& p, const Place& q) {
    return std::pair(p.file, p.begin) < std::pair(q.file, q.end);
  });
  for (; place != places_.end() && place->file == part.file && place->begin < part.end; ++place) {
    const auto& tensor = layout_.stored.tensors[place->tensor];
    const Box& box = tensor.boxes[place->stored].box;
    const std::uint64_t begin = std::max(place->begin, part.begin);
    const std::uint64_t end = std::min(place->end, part.end);
    const std::uint64_t group = group_elements(tensor.dtype);
    const std::uint64_t group_bytes = group * bits_of(tensor.dtype) / 8;
    const std::uint64_t first = (begin - place->begin) / group_bytes;
    const std::uint64_t last = base::ceil_div(end - place->begin, group_bytes);
    WindowRegion region;
    region.tensor = place->tensor;
    region.boxes = shifted(shard::boxes_of_flat_range(box.shape, first * group, last * group), box);
    region.memory = memory.subspan(begin - part.begin, end - begin);
    region.skip_bytes = begin - place->begin - first * group_bytes;
    region.loaded_bytes = (last - first) * group_bytes;
    out.push_back(std::move(region));
  }
}

}  // namespace cairn::checkpoint
