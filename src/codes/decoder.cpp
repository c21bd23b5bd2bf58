#include "codes/decoder.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

#include "base/checked.hpp"
#include "base/text.hpp"
#include "cairn/error.hpp"
#include "codes/decode_pieces.hpp"
#include "quant/boxes.hpp"
#include "quant/cast.hpp"
#include "shard/box_math.hpp"

namespace cairn::codes {
namespace {

/// Of the memory, half is for codes; a piece's codes, scales and decoded values, at most 25 bytes an element, take less
/// than the other half. A piece's values are meant to stay in the cache.
constexpr std::uint64_t kBytesPerPieceElement = 64;
constexpr std::uint64_t kLargestPieceElements = 1 << 18;

bool is_moment(const ViewTensor& tensor) {
  return tensor.origin == Origin::kFirstMoment || tensor.origin == Origin::kSecondMoment;
}

std::span<float> scratch_for(std::vector<float>& scratch, std::size_t elements) {
  if (scratch.size() < elements) scratch.resize(elements);
  return std::span(scratch).first(elements);
}

/// The memory of a destination as floats when that is on the host and the piece lies there in one run, else scratch
/// memory.
std::span<float> place_for(const plan::MemoryBox& wanted, std::span<const plan::Run> runs, std::vector<float>& scratch,
                           std::size_t elements) {
  if (wanted.memory == Memory::kHost && runs.size() == 1 && runs[0].length_bytes == elements * sizeof(float)) {
    std::byte* at = wanted.bytes.data() + runs[0].memory_offset;
    if (reinterpret_cast<std::uintptr_t>(at) % alignof(float) == 0) return {reinterpret_cast<float*>(at), elements};
  }
  return scratch_for(scratch, elements);
}

}  // namespace

Decoder::Decoder(const opening::OpenCheckpoint& checkpoint, const View& view, std::span<const plan::MemoryBox> wanted,
                 std::uint64_t memory_bytes, io::DeviceCopies& device, Purpose purpose)
    : checkpoint_(checkpoint),
      view_(view),
      device_(device),
      purpose_(purpose),
      batch_bytes_(memory_bytes / 2),
      piece_elements_(std::clamp<std::uint64_t>(memory_bytes / kBytesPerPieceElement, 1, kLargestPieceElements)) {
  for (const plan::MemoryBox& want : wanted) add(want);
}

void Decoder::add(const plan::MemoryBox& want) {
  const ViewTensor& tensor = view_.at(want.tensor);
  const auto& check = purpose_ == Purpose::kPlanning ? check_planned : check_wanted;
  check(want, tensor.name, tensor.dtype, tensor.shape);
  const bool is_copy = tensor.origin == Origin::kCast && view_.stored->tensors[tensor.source].dtype == tensor.dtype;
  if (tensor.origin == Origin::kStored || is_copy) {
    direct_.push_back(want);
    direct_.back().tensor = tensor.source;
    return;
  }
  if (shard::is_empty(want.box)) return;
  if (tensor.origin == Origin::kCast) {
    tasks_.push_back({&tensor, want.box, {want}, {}});
    return;
  }
  const auto [at, is_new] =
      task_of_moments_.try_emplace({tensor.source, want.box.offset, want.box.shape}, tasks_.size());
  if (is_new) tasks_.push_back({&tensor, want.box, {}, {}});
  DecodeTask& task = tasks_[at->second];
  (tensor.origin == Origin::kFirstMoment ? task.first : task.second).push_back(want);
}

void Decoder::cut_next_task() {
  const std::size_t number = tasks_cut_++;
  const DecodeTask& task = tasks_[number];
  if (is_moment(*task.tensor)) {
    const CodedPair& pair = view_.pairs[task.tensor->source];
    if (pair.moments->boxes.empty()) {
      for (Box& box : decode_pieces(*pair.codec, pair.moments->shape, task.box, piece_elements_)) {
        pieces_.push_back({number, std::move(box)});
      }
    }
    for (const interop::ScaledBox& scaled : pair.moments->boxes) {
      const auto common = shard::intersect(task.box, scaled.box);
      if (!common) continue;
      for_each_piece(*common, piece_elements_, [&](const Box& box) {
        pieces_.push_back({number, box, 0, scaled.scales});
      });
    }
  } else {
    for_each_piece(task.box, piece_elements_, [&](const Box& box) { pieces_.push_back({number, box}); });
  }
  std::reverse(pieces_.begin(), pieces_.end());
}

std::vector<plan::MemoryBox> Decoder::stored_boxes(const DecodePiece& piece) const {
  const ViewTensor& tensor = *tasks_[piece.task].tensor;
  if (!is_moment(tensor)) return {{tensor.source, piece.box, {}}};
  const CodedPair& pair = view_.pairs[tensor.source];
  std::vector<plan::MemoryBox> boxes;
  for (std::size_t i = 0; i < pair.parts.size(); ++i) {
    boxes.push_back({pair.stored[i], pair.stored_box(i, piece.box, piece.scales), {}});
  }
  return boxes;
}

std::uint64_t Decoder::bytes_of(const plan::MemoryBox& stored) const {
  return shard::elements_of(stored.box) * (bits_of(view_.stored->tensors[stored.tensor].dtype) / 8);
}

std::span<const plan::MemoryBox> Decoder::next_batch() {
  loading_ = std::exchange(direct_, {});
  batch_.clear();
  const std::size_t first = loading_.size();
  std::uint64_t total_bytes = 0;
  while (!pieces_.empty() || tasks_cut_ < tasks_.size()) {
    if (pieces_.empty()) {
      cut_next_task();
      continue;
    }
    std::vector<plan::MemoryBox> boxes = stored_boxes(pieces_.back());
    std::uint64_t bytes = 0;
    for (const plan::MemoryBox& box : boxes) bytes += bytes_of(box);
    if (!batch_.empty() && total_bytes + bytes > batch_bytes_) break;
    total_bytes += bytes;
    batch_.push_back(std::move(pieces_.back()));
    pieces_.pop_back();
    batch_.back().first_wanted = loading_.size();
    std::move(boxes.begin(), boxes.end(), std::back_inserter(loading_));
  }
  if (purpose_ == Purpose::kPlanning) return loading_;
  memory_.resize(total_bytes);
  std::uint64_t at = 0;
  for (std::size_t i = first; i < loading_.size(); ++i) {
    loading_[i].bytes = std::span(memory_).subspan(at, bytes_of(loading_[i]));
    at += loading_[i].bytes.size();
  }
  return loading_;
}

std::uint64_t Decoder::finish_batch() {
  std::uint64_t bytes = 0;
  for (const DecodePiece& piece : batch_) bytes += make(piece, std::span(loading_).subspan(piece.first_wanted));
  device_.finish();
  return bytes;
}

std::uint64_t Decoder::make(const DecodePiece& piece, std::span<const plan::MemoryBox> loaded) {
  const bool is_cast = tasks_[piece.task].tensor->origin == Origin::kCast;
  return is_cast ? cast(piece, loaded[0].bytes) : decode(piece, loaded);
}

std::uint64_t Decoder::cast(const DecodePiece& piece, std::span<const std::byte> stored) {
  const DecodeTask& task = tasks_[piece.task];
  const DType from = view_.stored->tensors[task.tensor->source].dtype;
  const DType to = task.tensor->dtype;
  const plan::MemoryBox& place = task.first.at(0);
  const plan::Runs runs = plan::runs_of(to, {0, 0, piece.box}, place, piece.box);
  if (place.memory == Memory::kHost) {
    plan::for_each_run(runs, [&](const plan::Run& run) {
      const std::uint64_t first = run.file_offset * bits_of(from) / bits_of(to);
      const std::uint64_t bytes = run.length_bytes * bits_of(from) / bits_of(to);
      quant::cast_values(from, stored.subspan(first, bytes), to,
                         place.bytes.subspan(run.memory_offset, run.length_bytes));
    });
    return runs.bytes;
  }
  const auto values = std::as_writable_bytes(scratch_for(first_, base::ceil_div(runs.bytes, sizeof(float))));
  quant::cast_values(from, stored, to, values.first(runs.bytes));
  plan::for_each_run(runs, [&](const plan::Run& run) { copy_out(values, {&run, 1}, place); });
  return runs.bytes;
}

void Decoder::copy_out(std::span<const std::byte> made, std::span<const plan::Run> runs, const plan::MemoryBox& place) {
  for (const plan::Run& run : runs) {
    std::byte* const to = place.bytes.data() + run.memory_offset;
    const std::byte* const from = made.data() + run.file_offset;
    if (place.memory == Memory::kDevice) {
      device_.to_device({to, run.length_bytes}, {from, run.length_bytes}, run.length_bytes, 1);
    } else if (to != from) {
      std::memcpy(to, from, run.length_bytes);
    }
  }
}

/// Moments, whose runs are those of F32.
void Decoder::convert_out(std::span<const float> made, std::span<const plan::Run> runs, const plan::MemoryBox& place) {
  const DType dtype = view_.at(place.tensor).dtype;
  const auto values = std::as_bytes(made);
  if (dtype == DType::kF32) return copy_out(values, runs, place);
  for (const plan::Run& run : runs) {
    const auto in_dtype = [&](std::uint64_t bytes) { return bytes / sizeof(float) * bits_of(dtype) / 8; };
    const plan::Run there{0, in_dtype(run.memory_offset), in_dtype(run.length_bytes)};
    const auto from = values.subspan(run.file_offset, run.length_bytes);
    if (place.memory == Memory::kHost) {
      quant::cast_values(DType::kF32, from, dtype, place.bytes.subspan(there.memory_offset, there.length_bytes));
      continue;
    }
    converted_.resize(there.length_bytes);
    quant::cast_values(DType::kF32, from, dtype, converted_);
    copy_out(converted_, {&there, 1}, place);
  }
}

std::uint64_t Decoder::decode(const DecodePiece& piece, std::span<const plan::MemoryBox> loaded) {
  const DecodeTask& task = tasks_[piece.task];
  const CodedPair& pair = view_.pairs[task.tensor->source];
  const std::vector<std::uint64_t>& shape = pair.moments->shape;
  const std::size_t elements = shard::elements_of(piece.box);
  std::vector<plan::Run> runs;
  const plan::MemoryBox* place_of_runs = nullptr;
  const auto runs_in = [&](const plan::MemoryBox& place) -> std::span<const plan::Run> {
    if (place_of_runs == nullptr || place_of_runs->strides != place.strides) {
      runs = runs_of_piece(*pair.codec, shape, piece.box, place);
      place_of_runs = &place;
    }
    return runs;
  };
  std::vector<std::span<const std::byte>> parts;
  for (std::size_t i = 0; i < pair.parts.size(); ++i) parts.push_back(loaded[i].bytes);
  const auto values_of = [&](std::span<const plan::MemoryBox> wanted, std::vector<float>& scratch) {
    if (wanted.empty() || view_.at(wanted[0].tensor).dtype != DType::kF32) return scratch_for(scratch, elements);
    return place_for(wanted[0], runs_in(wanted[0]), scratch, elements);
  };
  const std::span<float> first = values_of(task.first, first_);
  const std::span<float> second = values_of(task.second, second_);
  try {
    for (std::size_t i = 0; i < parts.size(); ++i) {
      quant::check_scales(*pair.codec, pair.moments->parts[i], pair.parts[i], parts[i]);
    }
    if (pair.moments->one_scale_a_box) {
      const quant::Source line{pair.moments->first, {elements}};
      pair.codec->decode(line, shard::whole(line.shape), parts, view_.decode, {first, second});
    } else {
      pair.codec->decode({pair.moments->first, shape}, piece.box, parts, view_.decode, {first, second});
    }
  } catch (const Error& error) {
    throw Error(error.kind(), fmt::format("'{}': {}", base::printable(checkpoint_.directory.string()), error.what()),
                {0, checkpoint_.directory.native()});
  }
  for (const plan::MemoryBox& place : task.first) convert_out(first, runs_in(place), place);
  for (const plan::MemoryBox& place : task.second) convert_out(second, runs_in(place), place);
  return 2 * elements * sizeof(float);
}

}  // namespace cairn::codes
