#include "checkpoint/piece_coder.hpp"

#include <cstring>

#include "checkpoint/box_pieces.hpp"
#include "plan/runs.hpp"
#include "quant/boxes.hpp"
#include "quant/check.hpp"
#include "quant/whole.hpp"
#include "shard/box_math.hpp"

namespace cairn::checkpoint {
namespace {

/// At a time: both moments of it fit a second-level cache. A multiple of every codec's block.
constexpr std::uint64_t kChunkElements = 1ULL << 16;

/// The elements of boxes of a tensor, end to end: where they lie already, or copied.
std::span<const float> gathered(std::span<const Box> boxes, const LocalBox& memory, std::vector<float>& buffer) {
  std::uint64_t elements = 0;
  for (const Box& box : boxes) elements += shard::elements_of(box);
  buffer.resize(elements);
  auto* to = reinterpret_cast<std::byte*>(buffer.data());
  const std::byte* in_place = nullptr;
  for (const Box& box : boxes) {
    const std::uint64_t bytes = shard::elements_of(box) * sizeof(float);
    plan::for_each_run({DType::kF32, box, 0, memory.box, box}, 0, bytes, [&](const plan::Run& run) {
      const std::byte* from = memory.data + run.memory_offset;
      const bool is_all = run.length_bytes == elements * sizeof(float);
      const bool is_aligned = reinterpret_cast<std::uintptr_t>(from) % alignof(float) == 0;
      if (is_all && is_aligned) {
        in_place = from;
      } else {
        std::memcpy(to + run.file_offset, from, run.length_bytes);
      }
    });
    to += bytes;
  }
  if (in_place != nullptr) return {reinterpret_cast<const float*>(in_place), elements};
  return buffer;
}

/// Calls visit(chunk of the piece's box in the view's coordinates, its moments).
template <class Visit>
void for_each_chunk(const CodedTensor& tensor, const Box& box, const PieceMemory& memory, Visit visit) {
  const bool is_flat = tensor.codec->view(tensor.source.shape) != tensor.source.shape;
  std::vector<float> m;
  std::vector<float> v;
  for_each_piece(box, kChunkElements, [&](const Box& chunk) {
    std::vector<Box> boxes = {chunk};
    if (is_flat) {
      boxes = shard::boxes_of_flat_range(tensor.source.shape, chunk.offset[0], chunk.offset[0] + chunk.shape[0]);
    }
    visit(chunk, quant::ConstMoments{gathered(boxes, memory.first, m), gathered(boxes, memory.second, v)});
  });
}

}  // namespace

quant::Statistics measure_piece(const CodedTensor& tensor, const Box& box, const PieceMemory& memory) {
  quant::Statistics statistics = tensor.codec->no_statistics(tensor.source.shape, box);
  for_each_chunk(tensor, box, memory, [&](const Box& chunk, const quant::ConstMoments& moments) {
    quant::refuse_unusual_moments(*tensor.codec, tensor.source, chunk, moments);
    tensor.codec->measure(tensor.source, chunk, moments, statistics);
  });
  return statistics;
}

std::vector<base::Bytes> encode_piece(const CodedTensor& tensor, const Box& box, const PieceMemory& memory,
                                      const quant::Statistics& statistics, quant::ErrorSums* errors) {
  const auto& parts = tensor.parts;
  std::vector<base::Bytes> out(parts.size());
  for (std::size_t p = 0; p < parts.size(); ++p) {
    if (parts[p].role == quant::Role::kScales) continue;
    out[p].resize(quant::bytes_of(parts[p], tensor.codec->part_box(tensor.source.shape, p, box)));
  }
  std::vector<std::size_t> filled(parts.size(), 0);
  std::vector<base::Bytes> scales(parts.size());  // of a chunk
  std::vector<float> m;
  std::vector<float> v;
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
    if (errors == nullptr) return;
    m.resize(moments.m.size());
    v.resize(moments.v.size());
    const std::vector<std::span<const std::byte>> coded(spans.begin(), spans.end());
    tensor.codec->decode(tensor.source, chunk, coded, {}, {m, v});
    errors->add(moments, {m, v});
  });
  return out;
}

}  // namespace cairn::checkpoint
