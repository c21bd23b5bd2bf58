#include "export/window_filler.hpp"

#include <algorithm>
#include <cstring>

#include "base/checked.hpp"
#include "checkpoint/call.hpp"
#include "codes/decode_pieces.hpp"
#include "comm/agree.hpp"
#include "os/fault.hpp"
#include "quant/boxes.hpp"
#include "quant/codec.hpp"
#include "shard/box_math.hpp"

namespace cairn::checkpoint {
namespace {

bool has_whole_scales(const CodedTensor& tensor) {
  return has_scales(*tensor.codec) && tensor.codec->traits().group_rows == 0;
}

std::uint64_t moment_bytes(const Box& box) { return kPairBytes * shard::elements_of(box); }

/// Number in the catalog of each tensor of the layout.
std::vector<std::uint32_t> numbers_in(const plan::Catalog& catalog, const format::StoredCheckpoint& layout) {
  const auto numbers = plan::numbers_by_name(catalog.tensors);
  std::vector<std::uint32_t> result;
  for (const auto& tensor : layout.tensors) result.push_back(numbers.at({tensor.section, tensor.name}));
  return result;
}

/// The bytes of all parts of a box.
struct PartMemory {
  PartMemory(const CodedTensor& tensor, const Box& box, bool scales_only) {
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

}  // namespace

std::uint64_t batch_bytes(const Options& options) {
  return std::max<std::uint64_t>(options.limits.memory_budget_bytes / 8, kPairBytes << 10);
}

WindowFiller::WindowFiller(comm::Communicator& communicator, const Work& work)
    : communicator_(communicator), work_(work), index_(work.layout) {
  comm::agree(communicator_, "find the tensors to write",
              [&] { numbers_ = numbers_in(work_.content.catalog, work_.layout.stored); });
  find_scales();
}

/// Every rank reads a share of the pieces.
void WindowFiller::find_scales() {
  std::vector<CodingItem> mine;
  comm::agree(communicator_, "share the moments", [&] {
    std::uint64_t piece = 0;
    const auto ranks = static_cast<std::uint64_t>(communicator_.size());
    for (std::uint32_t p = 0; p < work_.content.pairs.size(); ++p) {
      const CodedTensor& tensor = work_.content.pairs[p].tensor;
      if (!has_whole_scales(tensor)) continue;
      const Box whole = shard::whole(tensor.source.shape);
      scales_.emplace(p, tensor.codec->no_statistics(tensor.source.shape, whole));
      for_each_piece(whole, work_.batch_bytes / kPairBytes, [&](const Box& box) {
        if (piece++ % ranks == static_cast<std::uint64_t>(communicator_.rank())) mine.push_back({{p, 0}, box, {}, 0});
      });
    }
  });
  if (scales_.empty()) return;
  run(mine);
  for (auto& scale : scales_) {
    auto& statistics = scale.second;
    std::vector<std::uint64_t> keys;
    comm::agree(communicator_, "reduce the scales", [&] { keys = quant::reduction_keys(statistics); });
    communicator_.all_reduce(keys, comm::ReduceOp::kMax);
    quant::take_reduction_keys(keys, statistics);
  }
}

std::uint64_t WindowFiller::fill(const io::WindowBuffer& window) {
  const QuietProgress quiet;
  std::vector<WindowRegion> regions;
  std::vector<CodingItem> items;
  std::vector<plan::MemoryBox> plain;
  std::vector<base::Bytes> cut;  // of sub-byte groups that the window cuts
  std::uint64_t bytes = 0;
  comm::agree(communicator_, "find what a window holds", [&] {
    const std::uint64_t limit = std::max<std::uint64_t>(work_.batch_bytes / kPairBytes, 1);
    regions = index_.regions(window);
    cut.resize(regions.size());
    for (std::size_t r = 0; r < regions.size(); ++r) {
      const WindowRegion& region = regions[r];
      bytes += region.memory.size();
      const TensorOrigin& origin = work_.content.origins.at(numbers_[region.tensor]);
      if (origin.pair && is_whole_scale(origin)) {
        copy_scales(region, origin);
        continue;
      }
      if (origin.pair) {
        const CodedTensor& tensor = work_.content.pairs[*origin.pair].tensor;
        add_items(tensor, {*origin.pair, origin.part}, region, limit, items);
        continue;
      }
      std::span<std::byte> memory = region.memory;
      if (region.loaded_bytes != memory.size()) {
        cut[r].resize(region.loaded_bytes);
        memory = cut[r];
      }
      const DType dtype = work_.content.catalog.tensors[numbers_[region.tensor]].dtype;
      std::uint64_t at = 0;
      for (const Box& box : region.boxes) {
        const std::uint64_t size = shard::elements_of(box) * bits_of(dtype) / 8;
        plain.push_back({origin.source, box, memory.subspan(at, size)});
        at += size;
      }
    }
  });
  work_.reader.load(plain);
  for (std::size_t r = 0; r < regions.size(); ++r) {
    if (cut[r].empty()) continue;
    std::memcpy(regions[r].memory.data(), cut[r].data() + regions[r].skip_bytes, regions[r].memory.size());
  }
  run(items);
  return bytes;
}

bool WindowFiller::is_whole_scale(const TensorOrigin& origin) const {
  const CodedTensor& tensor = work_.content.pairs[*origin.pair].tensor;
  return has_whole_scales(tensor) && tensor.parts[origin.part].role == quant::Role::kScales;
}

void WindowFiller::copy_scales(const WindowRegion& region, const TensorOrigin& origin) const {
  const CodedTensor& tensor = work_.content.pairs[*origin.pair].tensor;
  const Box whole = shard::whole(tensor.source.shape);
  const PartMemory memory(tensor, whole, true);
  tensor.codec->store_scales(tensor.source, whole, scales_.at(*origin.pair), memory.spans);
  const quant::Part& part = tensor.parts[origin.part];
  const std::uint64_t first = shard::flat_index(part.shape, region.boxes.front().offset) * bits_of(part.dtype) / 8;
  std::memcpy(region.memory.data(), memory.bytes[origin.part].data() + first + region.skip_bytes, region.memory.size());
}

/// Collective: reads the moments of the items in batches, and codes them. Items without memory are measured.
void WindowFiller::run(std::vector<CodingItem>& items) {
  std::vector<std::size_t> ends;
  comm::agree(communicator_, "share the moments", [&] {
    std::uint64_t bytes = 0;
    for (std::size_t i = 0; i < items.size(); ++i) {
      const std::uint64_t more = moment_bytes(items[i].box);
      if (bytes != 0 && bytes + more > work_.batch_bytes) {
        ends.push_back(i);
        bytes = 0;
      }
      bytes += more;
    }
    if (!items.empty()) ends.push_back(items.size());
  });
  const std::uint64_t batches = communicator_.max(ends.size());
  std::size_t begin = 0;
  for (std::uint64_t batch = 0; batch < batches; ++batch) {
    const std::size_t end = batch < ends.size() ? ends[batch] : items.size();
    std::vector<std::vector<float>> values;
    std::vector<plan::MemoryBox> wanted;
    comm::agree(communicator_, "make room for moments", [&] {
      os::fault_memory("memory.moments");
      for (std::size_t i = begin; i < end; ++i) {
        const PairToCode& pair = work_.content.pairs[items[i].part.pair];
        const std::vector<Box> boxes = boxes_in_tensor(pair.tensor, items[i].box);
        for (const std::uint32_t moment : {pair.first, pair.second}) {
          values.emplace_back(shard::elements_of(items[i].box));
          std::span<std::byte> memory = std::as_writable_bytes(std::span(values.back()));
          for (const Box& box : boxes) {
            const std::uint64_t size = shard::elements_of(box) * sizeof(float);
            wanted.push_back({moment, box, memory.first(size)});
            memory = memory.subspan(size);
          }
        }
      }
    });
    work_.reader.load(wanted);
    comm::agree(communicator_, "code the moments", [&] {
      for (std::size_t i = begin; i < end; ++i) code(items[i], {values[2 * (i - begin)], values[2 * (i - begin) + 1]});
    });
    begin = end;
  }
}

void WindowFiller::code(const CodingItem& item, const quant::ConstMoments& moments) {
  const CodedTensor& tensor = work_.content.pairs[item.part.pair].tensor;
  const quant::Codec& codec = *tensor.codec;
  if (has_scales(codec)) quant::refuse_unusual_moments(codec, tensor.source, item.box, moments);
  if (item.out.empty()) return codec.measure(tensor.source, item.box, moments, scales_.at(item.part.pair));
  quant::Statistics own;
  if (has_scales(codec) && !has_whole_scales(tensor)) {
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
  std::memcpy(item.out.data(), memory.bytes[item.part.part].data() + item.out_from, item.out.size());
  if (item.part.part != 0) return;
  // A block counts where its first byte is written.
  const std::uint64_t block = codec.traits().block_elements;
  const std::uint64_t block_bytes = memory.bytes[0].size() / base::ceil_div(moments.m.size(), block);
  const quant::ElementRange written = {base::ceil_div(item.out_from, block_bytes) * block,
                                       base::ceil_div(item.out_from + item.out.size(), block_bytes) * block};
  measure_errors(work_.measuring, {codec, tensor.source, item.box, moments, memory.spans}, errors_[item.part.pair],
                 written);
}

}  // namespace cairn::checkpoint
