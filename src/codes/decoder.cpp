#include "codes/decoder.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

#include "base/checked.hpp"
#include "base/text.hpp"
#include "cairn/error.hpp"
#include "quant/boxes.hpp"
#include "quant/cast.hpp"
#include "shard/box_math.hpp"

namespace cairn::codes {
namespace {

/// Half of the memory is for codes. A piece's codes, scales and decoded values, at most 25 bytes per element,
/// take less than the other half. The values of a piece should fit the cache.
constexpr std::uint64_t kBytesPerPieceElement = 64;
constexpr std::uint64_t kLargestPieceElements = 1 << 18;

bool is_moment(const ViewTensor& tensor) {
  return tensor.origin == Origin::kFirstMoment || tensor.origin == Origin::kSecondMoment;
}

std::span<float> scratch_for(std::vector<float>& scratch, std::size_t elements) {
  if (scratch.size() < elements) scratch.resize(elements);
  return std::span(scratch).first(elements);
}

/// The memory of a destination, as floats, if it is aligned host memory that holds the piece in one run; otherwise
/// scratch memory.
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
      memory_bytes_(memory_bytes),
      piece_elements_(std::clamp<std::uint64_t>(memory_bytes / kBytesPerPieceElement, 1, kLargestPieceElements)) {
  for (const plan::MemoryBox& want : wanted) add(want);
}

void Decoder::add(const plan::MemoryBox& want) {
  const ViewTensor& tensor = view_.at(want.tensor);
  const auto& check = purpose_ == Purpose::kPlanning ? check_planned : check_wanted;
  check(want, tensor.name, tensor.dtype, tensor.shape);
  if (tensor.origin != Origin::kMapped) return add(tensor, want);
  for (const plan::MapPiece& piece : view_.mapped.at(tensor.source)) {
    auto part = plan::part_of_source(piece, tensor.dtype, want);
    if (part) add(view_.sources.at(piece.source), std::move(*part));
  }
}

void Decoder::add(const ViewTensor& tensor, plan::MemoryBox want) {
  if (!is_moment(tensor) && is_copy(tensor, want) && !plan::is_turned(want)) {
    want.tensor = tensor.source;
    direct_.push_back(std::move(want));
    return;
  }
  if (shard::is_empty(want.box)) return;
  if (!is_moment(tensor)) {
    tasks_.push_back({&tensor, want.box, {std::move(want)}, {}});
    return;
  }
  const auto [at, is_new] =
      task_of_moments_.try_emplace({tensor.source, want.box.offset, want.box.shape}, tasks_.size());
  if (is_new) tasks_.push_back({&tensor, want.box, {}, {}});
  DecodeTask& task = tasks_[at->second];
  (tensor.origin == Origin::kFirstMoment ? task.first : task.second).push_back(std::move(want));
}

bool Decoder::is_copy(const ViewTensor& tensor, const plan::MemoryBox& want) const {
  return view_.stored->tensors[tensor.source].dtype == wanted_dtype(want);
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
    // A copied box is read into the memory of the batch, and copied from there to its place.
    const DType dtype = view_.stored->tensors[task.tensor->source].dtype;
    const bool copies = is_copy(*task.tensor, task.first[0]);
    for_each_piece(task.box, copies ? memory_bytes_ * 8 / bits_of(dtype) : piece_elements_, [&](const Box& box) {
      pieces_.push_back({number, box});
    });
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
  std::uint64_t taken_bytes = 0;
  while (!pieces_.empty() || tasks_cut_ < tasks_.size()) {
    if (pieces_.empty()) {
      cut_next_task();
      continue;
    }
    std::vector<plan::MemoryBox> boxes = stored_boxes(pieces_.back());
    std::uint64_t bytes = 0;
    for (const plan::MemoryBox& box : boxes) bytes += bytes_of(box);
    const DecodeTask& task = tasks_[pieces_.back().task];
    const std::uint64_t taken = !is_moment(*task.tensor) && is_copy(*task.tensor, task.first[0]) ? bytes : 2 * bytes;
    if (!batch_.empty() && taken_bytes + taken > memory_bytes_) break;
    total_bytes += bytes;
    taken_bytes += taken;
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
  const DecodeTask& task = tasks_[piece.task];
  if (is_moment(*task.tensor)) return decode(piece, loaded);
  const DType from = view_.stored->tensors[task.tensor->source].dtype;
  const plan::MemoryBox& place = task.first.at(0);
  const std::span boxes(&piece.box, 1);
  put({loaded[0].bytes, from, boxes, runs_of_boxes(wanted_dtype(place), boxes, place)}, place);
  return shard::elements_of(piece.box) * bits_of(wanted_dtype(place)) / 8;
}

void Decoder::cast(std::span<const std::byte> values, DType from, DType to, std::span<std::byte> out) {
  quant::cast_values(from, values, to, out);
  if (view_.overflows != nullptr) *view_.overflows += quant::count_overflows(from, values, to, out);
}

std::span<const std::byte> Decoder::converted(std::span<const std::byte> values, DType from, DType to) {
  if (from == to) return values;
  converted_.resize(values.size() * bits_of(to) / bits_of(from));
  cast(values, from, to, converted_);
  return converted_;
}

void Decoder::put_runs(const Made& made, const plan::MemoryBox& place) {
  const DType to = wanted_dtype(place);
  const auto in_values = [&](std::uint64_t bytes) { return bytes * bits_of(made.dtype) / bits_of(to); };
  for (const plan::Run& run : made.runs) {
    const auto values = made.values.subspan(in_values(run.file_offset), in_values(run.length_bytes));
    const auto at = place.bytes.subspan(run.memory_offset, run.length_bytes);
    if (place.memory == Memory::kDevice) {
      device_.to_device({at.data(), at.size()}, {converted(values, made.dtype, to).data(), at.size()}, at.size(), 1);
    } else if (made.dtype != to) {
      cast(values, made.dtype, to, at);
    } else if (at.data() != values.data()) {
      std::memcpy(at.data(), values.data(), at.size());
    }
  }
}

void Decoder::put(const Made& made, const plan::MemoryBox& place) {
  if (!plan::is_turned(place)) return put_runs(made, place);
  const DType to = wanted_dtype(place);
  std::span<const std::byte> left = converted(made.values, made.dtype, to);
  for (const Box& box : made.boxes) {
    const auto values = left.first(shard::elements_of(box) * bits_of(to) / 8);
    left = left.subspan(values.size());
    if (place.memory == Memory::kHost) {
      plan::copy_turned(to, box, values, place);
    } else if (const auto common = shard::intersect(box, place.box)) {
      const plan::Upright there = plan::upright(to, *common, place);
      turned_.resize(shard::elements_of(*common) * bits_of(to) / 8);
      plan::copy_turned(to, box, values, {0, *common, turned_, Memory::kHost, there.strides});
      put_runs({turned_, to, {}, there.runs}, place);
    }
  }
}

std::uint64_t Decoder::decode(const DecodePiece& piece, std::span<const plan::MemoryBox> loaded) {
  const DecodeTask& task = tasks_[piece.task];
  const CodedPair& pair = view_.pairs[task.tensor->source];
  const std::vector<std::uint64_t>& shape = pair.moments->shape;
  const std::size_t elements = shard::elements_of(piece.box);
  const std::vector<Box> boxes = boxes_of_piece(*pair.codec, shape, piece.box);
  std::vector<plan::Run> runs;
  const plan::MemoryBox* place_of_runs = nullptr;
  const auto runs_in = [&](const plan::MemoryBox& place) -> std::span<const plan::Run> {
    const bool is_same = place_of_runs != nullptr && place_of_runs->strides == place.strides &&
                         wanted_dtype(*place_of_runs) == wanted_dtype(place);
    if (!is_same) runs = runs_of_boxes(wanted_dtype(place), boxes, place);
    place_of_runs = &place;
    return runs;
  };
  std::vector<std::span<const std::byte>> parts;
  for (std::size_t i = 0; i < pair.parts.size(); ++i) parts.push_back(loaded[i].bytes);
  const auto values_of = [&](std::span<const plan::MemoryBox> wanted, std::vector<float>& scratch) {
    if (wanted.empty() || wanted_dtype(wanted[0]) != DType::kF32) return scratch_for(scratch, elements);
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
  const auto put_all = [&](std::span<const float> made, std::span<const plan::MemoryBox> places) {
    for (const plan::MemoryBox& place : places) {
      put({std::as_bytes(made), DType::kF32, boxes, runs_in(place)}, place);
    }
  };
  put_all(first, task.first);
  put_all(second, task.second);
  return 2 * elements * sizeof(float);
}

}  // namespace cairn::codes
