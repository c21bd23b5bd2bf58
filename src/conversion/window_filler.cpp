#include "conversion/window_filler.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "base/checked.hpp"
#include "checkpoint/call.hpp"
#include "checkpoint/progress.hpp"
#include "codes/decode_pieces.hpp"
#include "comm/agree.hpp"
#include "os/fault.hpp"
#include "quant/boxes.hpp"
#include "quant/codec.hpp"
#include "shard/box_math.hpp"

namespace cairn::conversion {
namespace {

bool has_whole_scales(const codes::CodedTensor& tensor) {
  return codes::has_scales(*tensor.codec) && tensor.codec->traits().group_rows == 0;
}

std::uint64_t moment_bytes(const Box& box) { return kPairBytes * shard::elements_of(box); }

/// For each tensor of the layout, its number in the catalog.
std::vector<std::uint32_t> numbers_in(const plan::Catalog& catalog, const format::StoredCheckpoint& layout) {
  const auto numbers = plan::numbers_by_name(catalog.tensors);
  std::vector<std::uint32_t> result;
  for (const auto& tensor : layout.tensors) result.push_back(numbers.at({tensor.section, tensor.name}));
  return result;
}

/// The bytes of all parts of a box.
struct PartMemory {
  PartMemory(const codes::CodedTensor& tensor, const Box& box, bool scales_only) {
    for (std::size_t p = 0; p < tensor.parts.size(); ++p) {
      const bool is_elided = scales_only && tensor.parts[p].role == quant::Role::kCodes;
      const Box part = tensor.codec->part_box(tensor.source.shape, p, box);
      bytes.emplace_back(is_elided ? 0 : quant::bytes_of(tensor.parts[p], part));
    }
    for (base::Bytes& part : bytes) spans.emplace_back(part);
  }
  std::vector<base::Bytes> bytes;
  std::vector<std::span<std::byte>> spans;
};

/// The items of a batch.
std::span<const CodingItem> items_of(std::span<const CodingItem> items, std::span<const std::size_t> ends,
                                     std::uint64_t batch) {
  if (batch >= ends.size()) return {};
  const std::size_t begin = batch == 0 ? 0 : ends[batch - 1];
  return items.subspan(begin, ends[batch] - begin);
}

}  // namespace

std::uint64_t batch_bytes(const Options& options) {
  return std::max<std::uint64_t>(options.limits.memory_budget_bytes / 8, kPairBytes << 10);
}

/// Destinations of a batch.
struct WindowFiller::BatchMemory {
  std::span<std::byte> window;
  std::vector<base::Bytes> cut;            ///< by range: its loaded bytes, if the window cuts elements
  std::vector<std::vector<float>> values;  ///< both moments of each item
};

WindowFiller::WindowFiller(comm::Communicator& communicator, const Work& work)
    : communicator_(communicator), work_(work), index_(work.layout) {
  const std::uint64_t rounds = communicator_.max(work_.windows.size());
  comm::agree(communicator_, "find the tensors to write", [&] {
    numbers_ = numbers_in(work_.content.catalog, work_.layout.stored);
    for (std::uint32_t p = 0; p < work_.content.pairs.size(); ++p) {
      const codes::CodedTensor& tensor = work_.content.pairs[p].tensor;
      if (!has_whole_scales(tensor)) continue;
      scales_.emplace(p, tensor.codec->no_statistics(tensor.source.shape, shard::whole(tensor.source.shape)));
    }
    first_batches_.assign(rounds + 2, 0);
    for (std::uint64_t step = 0; step <= work_.windows.size(); ++step) {
      const Content content = content_of(step);
      const bool loads = !boxes_of(content, 0, nullptr).empty();
      first_batches_[step + 1] = std::max<std::uint64_t>(content.ends.size(), loads ? 1 : 0);
    }
  });
  communicator_.all_reduce(first_batches_, comm::ReduceOp::kMax);
  std::partial_sum(first_batches_.begin(), first_batches_.end(), first_batches_.begin());
  work_.reader.begin({first_batches_.back(), [this](std::uint64_t batch) { return boxes_of(batch); }});
  find_scales();
}

/// This rank's items of step 0: a share of the pieces of all tensors whose scales span whole columns.
std::vector<CodingItem> WindowFiller::scale_items() const {
  std::vector<CodingItem> mine;
  std::uint64_t piece = 0;
  const auto ranks = static_cast<std::uint64_t>(communicator_.size());
  for (const auto& scale : scales_) {
    const std::uint32_t pair = scale.first;
    const Box whole = shard::whole(work_.content.pairs[pair].tensor.source.shape);
    codes::for_each_piece(whole, work_.batch_bytes / kPairBytes, [&](const Box& box) {
      if (piece++ % ranks == static_cast<std::uint64_t>(communicator_.rank())) mine.push_back({{pair, 0}, box});
    });
  }
  return mine;
}

const TensorOrigin& WindowFiller::origin_of(const TensorRange& range) const {
  return work_.content.origins.at(numbers_[range.tensor]);
}

/// Rank-local, like all const functions here.
WindowFiller::Content WindowFiller::content_of(std::uint64_t step) const {
  Content content;
  if (step == 0) {
    content.items = scale_items();
  } else if (step <= work_.windows.size()) {
    const std::uint64_t limit = std::max<std::uint64_t>(work_.batch_bytes / kPairBytes, 1);
    content.ranges = index_.ranges(work_.windows[step - 1]);
    for (const TensorRange& range : content.ranges) {
      const TensorOrigin& origin = origin_of(range);
      if (!origin.pair || is_whole_scale(origin)) continue;
      const codes::CodedTensor& tensor = work_.content.pairs[*origin.pair].tensor;
      add_items(tensor, {*origin.pair, origin.part}, range, limit, content.items);
    }
  }
  cut_batches(content);
  return content;
}

void WindowFiller::cut_batches(Content& content) const {
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < content.items.size(); ++i) {
    const std::uint64_t more = moment_bytes(content.items[i].box);
    if (bytes != 0 && bytes + more > work_.batch_bytes) {
      content.ends.push_back(i);
      bytes = 0;
    }
    bytes += more;
  }
  if (!content.items.empty()) content.ends.push_back(content.items.size());
}

/// The source's boxes for a batch, in the order of ranges and items. `memory`: null to get boxes without memory.
std::vector<plan::MemoryBox> WindowFiller::boxes_of(const Content& content, std::uint64_t batch,
                                                    BatchMemory* memory) const {
  std::vector<plan::MemoryBox> boxes;
  const auto add = [&](std::uint32_t tensor, const std::vector<Box>& parts, std::uint64_t bits,
                       std::span<std::byte> place) {
    for (const Box& box : parts) {
      const std::uint64_t size = shard::elements_of(box) * bits / 8;
      boxes.push_back({tensor, box, memory == nullptr ? place : place.first(size)});
      if (memory != nullptr) place = place.subspan(size);
    }
  };
  if (memory != nullptr) memory->cut.resize(content.ranges.size());
  for (std::size_t r = 0; batch == 0 && r < content.ranges.size(); ++r) {
    const TensorRange& range = content.ranges[r];
    const TensorOrigin& origin = origin_of(range);
    if (origin.pair) continue;
    std::span<std::byte> place;
    if (memory != nullptr && range.loaded_bytes == range.bytes) {
      place = memory->window.subspan(range.window_offset, range.bytes);
    } else if (memory != nullptr) {
      memory->cut[r].resize(range.loaded_bytes);
      place = memory->cut[r];
    }
    add(origin.source, range.boxes, bits_of(work_.content.catalog.tensors[numbers_[range.tensor]].dtype), place);
  }
  for (const CodingItem& item : items_of(content.items, content.ends, batch)) {
    const PairToCode& pair = work_.content.pairs[item.part.pair];
    const std::vector<Box> parts = codes::boxes_in_tensor(pair.tensor, item.box);
    for (const std::uint32_t moment : {pair.first, pair.second}) {
      std::span<std::byte> place;
      if (memory != nullptr) {
        memory->values.emplace_back(shard::elements_of(item.box));
        place = std::as_writable_bytes(std::span(memory->values.back()));
      }
      add(moment, parts, bits_of(DType::kF32), place);
    }
  }
  return boxes;
}

/// Rank-local: the boxes of a batch of the reader, without memory.
std::vector<plan::MemoryBox> WindowFiller::boxes_of(std::uint64_t batch) {
  const auto after = std::upper_bound(first_batches_.begin(), first_batches_.end(), batch);
  const auto step = static_cast<std::uint64_t>(after - first_batches_.begin()) - 1;
  if (!planned_ || planned_->first != step) planned_.emplace(step, content_of(step));
  return boxes_of(planned_->second, batch - first_batches_[step], nullptr);
}

void WindowFiller::find_scales() {
  Content content;
  comm::agree(communicator_, "share the moments", [&] { content = content_of(0); });
  run_step(content, {});
  for (auto& scale : scales_) {
    auto& statistics = scale.second;
    std::vector<std::uint64_t> keys;
    comm::agree(communicator_, "reduce the scales", [&] { keys = quant::reduction_keys(statistics); });
    communicator_.all_reduce(keys, comm::ReduceOp::kMax);
    quant::take_reduction_keys(keys, statistics);
  }
}

std::uint64_t WindowFiller::fill(const io::WindowBuffer& window) {
  const checkpoint::QuietProgress quiet;
  Content content;
  std::uint64_t bytes = 0;
  comm::agree(communicator_, "find what a window holds", [&] {
    content = content_of(next_step_);
    for (const TensorRange& range : content.ranges) {
      bytes += range.bytes;
      const TensorOrigin& origin = origin_of(range);
      if (origin.pair && is_whole_scale(origin)) copy_scales(range, origin, window.buffer);
    }
  });
  run_step(content, window.buffer);
  return bytes;
}

/// Collective: reads the batches of the next step, and codes their moments.
void WindowFiller::run_step(const Content& content, std::span<std::byte> window) {
  const std::uint64_t step = next_step_++;
  const std::uint64_t batches = first_batches_.at(step + 1) - first_batches_[step];
  for (std::uint64_t batch = 0; batch < batches; ++batch) {
    BatchMemory memory{window, {}, {}};
    std::vector<plan::MemoryBox> wanted;
    comm::agree(communicator_, "make room for moments", [&] {
      os::fault_memory("memory.moments");
      planned_.reset();
      wanted = boxes_of(content, batch, &memory);
    });
    work_.reader.load_next(wanted);
    comm::agree(communicator_, "code the moments", [&] {
      for (std::size_t r = 0; r < content.ranges.size(); ++r) {
        const TensorRange& range = content.ranges[r];
        if (memory.cut[r].empty()) continue;
        std::memcpy(window.data() + range.window_offset, memory.cut[r].data() + range.skip_bytes, range.bytes);
      }
      std::size_t value = 0;
      for (const CodingItem& item : items_of(content.items, content.ends, batch)) {
        code(item, {memory.values[value], memory.values[value + 1]}, window);
        value += 2;
      }
    });
  }
}

bool WindowFiller::is_whole_scale(const TensorOrigin& origin) const {
  const codes::CodedTensor& tensor = work_.content.pairs[*origin.pair].tensor;
  return has_whole_scales(tensor) && tensor.parts[origin.part].role == quant::Role::kScales;
}

void WindowFiller::copy_scales(const TensorRange& range, const TensorOrigin& origin,
                               std::span<std::byte> window) const {
  const codes::CodedTensor& tensor = work_.content.pairs[*origin.pair].tensor;
  const Box whole = shard::whole(tensor.source.shape);
  const PartMemory memory(tensor, whole, true);
  tensor.codec->store_scales(tensor.source, whole, scales_.at(*origin.pair), memory.spans);
  const quant::Part& part = tensor.parts[origin.part];
  const std::uint64_t first = shard::flat_index(part.shape, range.boxes.front().offset) * bits_of(part.dtype) / 8;
  std::memcpy(window.data() + range.window_offset, memory.bytes[origin.part].data() + first + range.skip_bytes,
              range.bytes);
}

void WindowFiller::code(const CodingItem& item, const quant::ConstMoments& moments, std::span<std::byte> window) {
  const codes::CodedTensor& tensor = work_.content.pairs[item.part.pair].tensor;
  const quant::Codec& codec = *tensor.codec;
  if (codes::has_scales(codec)) quant::refuse_unusual_moments(codec, tensor.source, item.box, moments);
  if (item.bytes == 0) return codec.measure(tensor.source, item.box, moments, scales_.at(item.part.pair));
  quant::Statistics own;
  if (codes::has_scales(codec) && !has_whole_scales(tensor)) {
    own = codec.no_statistics(tensor.source.shape, item.box);
    codec.measure(tensor.source, item.box, moments, own);
  }
  const quant::Statistics& statistics = has_whole_scales(tensor) ? scales_.at(item.part.pair) : own;
  const bool is_scale = tensor.parts[item.part.part].role == quant::Role::kScales;
  PartMemory memory(tensor, item.box, is_scale);
  if (is_scale) {
    codec.store_scales(tensor.source, item.box, statistics, memory.spans);
  } else {
    codec.encode(tensor.source, item.box, moments, statistics, memory.spans);
  }
  std::memcpy(window.data() + item.window_offset, memory.bytes[item.part.part].data() + item.from, item.bytes);
  if (item.part.part != 0) return;
  // The errors of a block are counted with the window that has its first byte.
  const std::uint64_t block = codec.traits().block_elements;
  const std::uint64_t block_bytes = memory.bytes[0].size() / base::ceil_div(moments.m.size(), block);
  const quant::ElementRange written = {base::ceil_div(item.from, block_bytes) * block,
                                       base::ceil_div(item.from + item.bytes, block_bytes) * block};
  codes::measure_errors(work_.measuring, {codec, tensor.source, item.box, moments, memory.spans},
                        errors_[item.part.pair], written);
}

}  // namespace cairn::conversion
