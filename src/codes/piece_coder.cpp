#include "codes/piece_coder.hpp"

#include <cstring>

#include "codes/decode_pieces.hpp"
#include "plan/runs.hpp"
#include "quant/boxes.hpp"
#include "quant/codec.hpp"
#include "quant/device_codec.hpp"
#include "quant/device_stage.hpp"
#include "shard/box_math.hpp"

namespace cairn::codes {
namespace {

/// Elements of a chunk, whose two moments fit a second-level cache. A multiple of every codec's block.
constexpr std::uint64_t kChunkElements = 1ULL << 16;

/// The memory, aligned for floats, in which the elements of all boxes already lie end to end. Otherwise null, after
/// calls of copy(byte offset in the result, bytes) for all runs of the boxes.
template <class Copy>
const float* in_place_or_copied(std::span<const Box> boxes, const plan::MemoryBox& memory, Copy copy) {
  const std::uint64_t all_bytes = shard::elements_of(boxes) * sizeof(float);
  const std::byte* in_place = nullptr;
  std::uint64_t at = 0;
  for (const Box& box : boxes) {
    const std::uint64_t bytes = shard::elements_of(box) * sizeof(float);
    plan::for_each_run(plan::runs_of(DType::kF32, {0, 0, box}, memory, box), [&](const plan::Run& run) {
      const std::byte* from = memory.bytes.data() + run.memory_offset;
      const bool is_aligned = reinterpret_cast<std::uintptr_t>(from) % alignof(float) == 0;
      if (run.length_bytes == all_bytes && is_aligned) {
        in_place = from;
      } else {
        copy(at + run.file_offset, std::span(from, run.length_bytes));
      }
    });
    at += bytes;
  }
  return reinterpret_cast<const float*>(in_place);
}

/// The elements of boxes in host memory, end to end: in their place, or copied to `buffer`.
std::span<const float> gathered(std::span<const Box> boxes, const plan::MemoryBox& memory, std::vector<float>& buffer) {
  const std::uint64_t elements = shard::elements_of(boxes);
  const float* in_place = in_place_or_copied(boxes, memory, [&](std::uint64_t at, std::span<const std::byte> from) {
    buffer.resize(elements);
    std::memcpy(reinterpret_cast<std::byte*>(buffer.data()) + at, from.data(), from.size());
  });
  return {in_place != nullptr ? in_place : buffer.data(), elements};
}

/// Calls visit(chunk, moments of the chunk) for all chunks of the piece's box, in the view's coordinates.
template <class Visit>
void for_each_chunk(const CodedTensor& tensor, const Box& box, const PieceMemory& memory, Visit visit) {
  std::vector<float> m;
  std::vector<float> v;
  for_each_piece(box, kChunkElements, [&](const Box& chunk) {
    const std::vector<Box> boxes = boxes_in_tensor(tensor, chunk);
    visit(chunk, quant::ConstMoments{gathered(boxes, memory.first, m), gathered(boxes, memory.second, v)});
  });
}

/// The piece's elements on the device: in their place, or gathered by copying runs.
class OnDevice {
 public:
  OnDevice(const CodedTensor& tensor, const Box& box, const PieceMemory& memory) {
    const std::vector<Box> boxes = boxes_in_tensor(tensor, box);
    moments_ = {gather(boxes, memory.first, first_), gather(boxes, memory.second, second_)};
    stream_.synchronise();
  }

  [[nodiscard]] const quant::ConstDeviceMoments& moments() const { return moments_; }
  [[nodiscard]] const gpu::Stream& stream() const { return stream_; }

 private:
  const float* gather(std::span<const Box> boxes, const plan::MemoryBox& memory, gpu::DeviceBuffer& buffer) const {
    const float* in_place = in_place_or_copied(boxes, memory, [&](std::uint64_t at, std::span<const std::byte> from) {
      if (buffer.size() == 0) buffer = gpu::DeviceBuffer(shard::elements_of(boxes) * sizeof(float));
      stream_.copy(buffer.span().subspan(at, from.size()), gpu::ConstDeviceSpan{from.data(), from.size()});
    });
    return in_place != nullptr ? in_place : reinterpret_cast<const float*>(buffer.span().data);
  }

  gpu::Stream stream_;
  gpu::DeviceBuffer first_;
  gpu::DeviceBuffer second_;
  quant::ConstDeviceMoments moments_;
};

/// Copies elements from a device to the host.
std::vector<float> brought(const float* from, std::uint64_t elements, DeviceMemory& device) {
  std::vector<float> to(elements);
  gpu::copy_to_host(device.pipeline(), {reinterpret_cast<const std::byte*>(from), elements * sizeof(float)},
                    std::as_writable_bytes(std::span(to)));
  return to;
}

/// Measures all elements, or a few runs of them.
void measure_on_device(const CodedTensor& tensor, const Box& box, const quant::ConstDeviceMoments& moments,
                       quant::Encoded& parts, DeviceMemory& device, Measuring measuring, quant::TensorErrors& errors) {
  const bool is_whole = measuring == Measuring::kAll;
  std::vector<quant::ElementRange> runs = {{0, shard::elements_of(box)}};
  if (!is_whole) runs = quant::few_runs(*tensor.codec, box);
  const std::vector<std::span<std::byte>> spans(parts.begin(), parts.end());
  for (const quant::ElementRange& run : runs) {
    const std::vector<float> m = brought(moments.m + run.begin, run.end - run.begin, device);
    const std::vector<float> v = brought(moments.v + run.begin, run.end - run.begin, device);
    const quant::CodedBox coded{*tensor.codec, tensor.source, box, {m, v}, spans};
    if (is_whole) return quant::add_errors(coded, {}, errors);
    quant::add_run(coded, run.begin, errors);
  }
}

std::vector<base::Bytes> encode_on_device(const CodedTensor& tensor, const Box& box, const PieceMemory& memory,
                                          const quant::Statistics& statistics, Measuring measuring,
                                          quant::TensorErrors& errors) {
  const OnDevice piece(tensor, box, memory);
  quant::Encoded parts;
  std::vector<Box> part_boxes;
  for (std::size_t p = 0; p < tensor.parts.size(); ++p) {
    part_boxes.push_back(tensor.codec->part_box(tensor.source.shape, p, box));
    parts.emplace_back(quant::bytes_of(tensor.parts[p], part_boxes[p]));
  }
  quant::encode_to_host(
      memory.device.pipeline(), quant::device_codec_of(*tensor.codec), tensor.source, box, piece.moments(), statistics,
      [&](const quant::PartPiece& bytes) {
        const std::size_t p = bytes.part;
        const plan::Runs runs = plan::runs_of(tensor.parts[p].dtype, {0, 0, bytes.box}, part_boxes[p], bytes.box);
        plan::for_each_run(runs, [&](const plan::Run& run) {
          std::memcpy(parts[p].data() + run.memory_offset, bytes.bytes.data() + run.file_offset, run.length_bytes);
        });
      });
  measure_on_device(tensor, box, piece.moments(), parts, memory.device, measuring, errors);
  for (std::size_t p = 0; p < parts.size(); ++p) {
    if (tensor.parts[p].role == quant::Role::kScales) parts[p] = {};
  }
  return parts;
}

}  // namespace

quant::Statistics measure_piece(const CodedTensor& tensor, const Box& box, const PieceMemory& memory) {
  quant::Statistics statistics = tensor.codec->no_statistics(tensor.source.shape, box);
  if (memory.first.memory == Memory::kDevice) {
    const OnDevice piece(tensor, box, memory);
    quant::device_codec_of(*tensor.codec).measure(tensor.source, box, piece.moments(), statistics, piece.stream());
    return statistics;
  }
  for_each_chunk(tensor, box, memory, [&](const Box& chunk, const quant::ConstMoments& moments) {
    quant::refuse_unusual_moments(*tensor.codec, tensor.source, chunk, moments);
    tensor.codec->measure(tensor.source, chunk, moments, statistics);
  });
  return statistics;
}

std::vector<base::Bytes> encode_piece(const CodedTensor& tensor, const Box& box, const PieceMemory& memory,
                                      const quant::Statistics& statistics, Measuring measuring,
                                      quant::TensorErrors& errors) {
  if (memory.first.memory == Memory::kDevice) {
    return encode_on_device(tensor, box, memory, statistics, measuring, errors);
  }
  const auto& parts = tensor.parts;
  std::vector<base::Bytes> out(parts.size());
  for (std::size_t p = 0; p < parts.size(); ++p) {
    if (parts[p].role == quant::Role::kScales) continue;
    out[p].resize(quant::bytes_of(parts[p], tensor.codec->part_box(tensor.source.shape, p, box)));
  }
  std::vector<std::size_t> filled(parts.size(), 0);
  std::vector<base::Bytes> scales(parts.size());  // scales of a chunk, not kept
  for_each_chunk(tensor, box, memory, [&](const Box& chunk, const quant::ConstMoments& moments) {
    std::vector<std::span<std::byte>> spans;
    for (std::size_t p = 0; p < parts.size(); ++p) {
      const std::uint64_t bytes = quant::bytes_of(parts[p], tensor.codec->part_box(tensor.source.shape, p, chunk));
      if (parts[p].role == quant::Role::kScales) {
        scales[p].resize(bytes);
        spans.emplace_back(scales[p]);
      } else {
        spans.push_back(std::span(out[p]).subspan(filled[p], bytes));
        filled[p] += bytes;
      }
    }
    tensor.codec->encode(tensor.source, chunk, moments, statistics, spans);
    measure_errors(measuring, {*tensor.codec, tensor.source, chunk, moments, spans}, errors);
  });
  return out;
}

}  // namespace cairn::codes
