#include "checkpoint/window_filler.hpp"

#include <cstring>
#include <map>
#include <memory>
#include <string_view>
#include <utility>

#include "shard/box_math.hpp"

namespace cairn::checkpoint {
namespace {

std::vector<std::uint32_t> source_numbers(const plan::FileLayout& layout, const View& view) {
  std::map<std::pair<std::string_view, std::string_view>, std::uint32_t> numbers;
  for (std::uint32_t i = 0; i < view.tensors.size(); ++i) {
    numbers[{view.tensors[i].section, view.tensors[i].name}] = i;
  }
  std::vector<std::uint32_t> result;
  for (const auto& tensor : layout.stored.tensors) result.push_back(numbers.at({tensor.section, tensor.name}));
  return result;
}

}  // namespace

WindowFiller::WindowFiller(const plan::FileLayout& layout, const View& view, TensorReader& reader)
    : index_(layout), numbers_(source_numbers(layout, view)), view_(view), reader_(reader) {}

std::uint64_t WindowFiller::fill(const io::WindowBuffer& window) {
  std::vector<WindowRegion> regions = index_.regions(window);
  std::vector<std::unique_ptr<std::vector<std::byte>>> scratch(regions.size());
  std::vector<WantedBox> wanted;
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < regions.size(); ++i) {
    std::span<std::byte> memory = regions[i].memory;
    if (regions[i].loaded_bytes != memory.size()) {
      scratch[i] = std::make_unique<std::vector<std::byte>>(regions[i].loaded_bytes);
      memory = *scratch[i];
    }
    append(wanted, regions[i], memory);
    bytes += regions[i].memory.size();
  }
  reader_.load(wanted);
  for (std::size_t i = 0; i < regions.size(); ++i) {
    if (!scratch[i]) continue;
    std::memcpy(regions[i].memory.data(), scratch[i]->data() + regions[i].skip_bytes, regions[i].memory.size());
  }
  return bytes;
}

void WindowFiller::append(std::vector<WantedBox>& wanted, const WindowRegion& region,
                          std::span<std::byte> memory) const {
  const std::uint32_t tensor = numbers_[region.tensor];
  const DType dtype = view_.at(tensor).dtype;
  std::uint64_t at = 0;
  for (const Box& box : region.boxes) {
    const std::uint64_t bytes = shard::elements_of(box) * bits_of(dtype) / 8;
    wanted.push_back({tensor, box, memory.subspan(at, bytes)});
    at += bytes;
  }
}

}  // namespace cairn::checkpoint
