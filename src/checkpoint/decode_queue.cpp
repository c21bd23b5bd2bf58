#include "checkpoint/decode_queue.hpp"

#include <algorithm>
#include <utility>

#include "codes/box_pieces.hpp"
#include "codes/decode_pieces.hpp"
#include "shard/box_math.hpp"

namespace cairn::checkpoint {
namespace {

/// Of the memory, half is for codes; a piece's codes, scales and decoded values, at most 25 bytes an element, take less than
/// the other half. A piece's values are meant to stay in the cache.
constexpr std::uint64_t kBytesPerPieceElement = 64;
constexpr std::uint64_t kLargestPieceElements = 1 << 18;

bool is_moment(const ViewTensor& tensor) {
  return tensor.origin == Origin::kFirstMoment || tensor.origin == Origin::kSecondMoment;
}

}  // namespace

DecodeQueue::DecodeQueue(const OpenCheckpoint& checkpoint, const View& view, std::span<const WantedBox> wanted,
                         std::uint64_t memory_bytes)
    : checkpoint_(checkpoint),
      view_(view),
      batch_bytes_(memory_bytes / 2),
      piece_elements_(std::clamp<std::uint64_t>(memory_bytes / kBytesPerPieceElement, 1, kLargestPieceElements)) {
  for (const WantedBox& want : wanted) add(want);
}

void DecodeQueue::add(const WantedBox& want) {
  const ViewTensor& tensor = view_.at(want.tensor);
  check_wanted(want, {tensor.name, tensor.dtype, tensor.shape});
  const bool is_copy =
      tensor.origin == Origin::kCast && checkpoint_.stored.tensors[tensor.source].dtype == tensor.dtype;
  if (tensor.origin == Origin::kStored || is_copy) {
    direct_.push_back({tensor.source, want.box, want.memory});
    return;
  }
  if (shard::is_empty(want.box)) return;
  if (tensor.origin == Origin::kCast) {
    tasks_.push_back({&tensor, want.box, {want.memory}, {}});
    return;
  }
  const auto [at, is_new] =
      task_of_moments_.try_emplace({tensor.source, want.box.offset, want.box.shape}, tasks_.size());
  if (is_new) tasks_.push_back({&tensor, want.box, {}, {}});
  DecodeTask& task = tasks_[at->second];
  (tensor.origin == Origin::kFirstMoment ? task.first : task.second).push_back(want.memory);
}

void DecodeQueue::cut_next_task() {
  const std::size_t number = tasks_cut_++;
  const DecodeTask& task = tasks_[number];
  if (is_moment(*task.tensor)) {
    const CodedPair& pair = view_.pairs[task.tensor->source];
    for (Box& box : decode_pieces(*pair.codec, pair.moments->shape, task.box, piece_elements_)) {
      pieces_.push_back({number, std::move(box), 0, 0});
    }
  } else {
    std::uint64_t offset_bytes = 0;
    for_each_piece(task.box, piece_elements_, [&](const Box& box) {
      pieces_.push_back({number, box, offset_bytes, 0});
      offset_bytes += shard::elements_of(box) * bits_of(task.tensor->dtype) / 8;
    });
  }
  std::reverse(pieces_.begin(), pieces_.end());
}

std::vector<WantedBox> DecodeQueue::stored_boxes(const DecodePiece& piece) const {
  const ViewTensor& tensor = *tasks_[piece.task].tensor;
  if (!is_moment(tensor)) return {{tensor.source, piece.box, {}}};
  const CodedPair& pair = view_.pairs[tensor.source];
  std::vector<WantedBox> boxes;
  for (std::size_t i = 0; i < pair.parts.size(); ++i) {
    boxes.push_back({pair.stored[i], pair.codec->part_box(pair.moments->shape, i, piece.box), {}});
  }
  return boxes;
}

std::uint64_t DecodeQueue::bytes_of(const WantedBox& stored) const {
  return shard::elements_of(stored.box) * (bits_of(checkpoint_.stored.tensors[stored.tensor].dtype) / 8);
}

void DecodeQueue::next(DecodeBatch& batch) {
  batch.wanted = std::exchange(direct_, {});
  batch.pieces.clear();
  const std::size_t first = batch.wanted.size();
  std::uint64_t total_bytes = 0;
  while (!pieces_.empty() || tasks_cut_ < tasks_.size()) {
    if (pieces_.empty()) {
      cut_next_task();
      continue;
    }
    std::vector<WantedBox> boxes = stored_boxes(pieces_.back());
    std::uint64_t bytes = 0;
    for (const WantedBox& box : boxes) bytes += bytes_of(box);
    if (!batch.pieces.empty() && total_bytes + bytes > batch_bytes_) break;
    total_bytes += bytes;
    batch.pieces.push_back(std::move(pieces_.back()));
    pieces_.pop_back();
    batch.pieces.back().first_wanted = batch.wanted.size();
    std::move(boxes.begin(), boxes.end(), std::back_inserter(batch.wanted));
  }
  batch.memory.resize(total_bytes);
  std::uint64_t at = 0;
  for (std::size_t i = first; i < batch.wanted.size(); ++i) {
    batch.wanted[i].memory = std::span(batch.memory).subspan(at, bytes_of(batch.wanted[i]));
    at += batch.wanted[i].memory.size();
  }
}

}  // namespace cairn::checkpoint
