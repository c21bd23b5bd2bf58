#include "checkpoint/decoding_reader.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/units.hpp"
#include "cairn/error.hpp"
#include "checkpoint/engine_choice.hpp"
#include "checkpoint/watched_call.hpp"
#include "codes/cast.hpp"
#include "codes/decode_pieces.hpp"
#include "comm/agree.hpp"
#include "format/blocks.hpp"
#include "quant/check.hpp"
#include "shard/box_math.hpp"

namespace cairn::checkpoint {
namespace {

/// The memory of the first destination as floats when the piece lies there in one run, else scratch memory.
std::span<float> place_for(std::span<const std::span<std::byte>> wanted, std::span<const plan::Run> runs,
                           std::vector<float>& scratch, std::size_t elements) {
  if (!wanted.empty() && runs.size() == 1 && runs[0].length_bytes == elements * sizeof(float)) {
    std::byte* at = wanted[0].data() + runs[0].memory_offset;
    if (reinterpret_cast<std::uintptr_t>(at) % alignof(float) == 0) return {reinterpret_cast<float*>(at), elements};
  }
  if (scratch.size() < elements) scratch.resize(elements);
  return std::span(scratch).first(elements);
}

void copy_out(std::span<const float> values, std::span<const plan::Run> runs,
              std::span<const std::span<std::byte>> wanted) {
  const auto* from = reinterpret_cast<const std::byte*>(values.data());
  for (const std::span<std::byte> memory : wanted) {
    for (const plan::Run& run : runs) {
      std::byte* to = memory.data() + run.memory_offset;
      if (to != from + run.file_offset) std::memcpy(to, from + run.file_offset, run.length_bytes);
    }
  }
}

}  // namespace

DecodingReader::DecodingReader(comm::Communicator& communicator, const OpenCheckpoint& checkpoint, const View& view,
                               std::unique_ptr<TensorReader> stored, std::uint64_t memory_bytes)
    : communicator_(communicator),
      checkpoint_(checkpoint),
      view_(view),
      stored_(std::move(stored)),
      memory_bytes_(memory_bytes) {}

void DecodingReader::load(std::span<const WantedBox> wanted) {
  std::unique_ptr<DecodeQueue> queue;
  DecodeBatch batch;
  comm::agree(communicator_, "plan what to decode",
              [&] { queue = std::make_unique<DecodeQueue>(checkpoint_, view_, wanted, memory_bytes_); });
  do {
    comm::agree(communicator_, "plan what to decode", [&] { queue->next(batch); });
    stored_->load(batch.wanted);
    const WatchedCall watched(communicator_, clock());
    clock().begin("decode");
    comm::agree(communicator_, "decode", [&] {
      for (const DecodePiece& piece : batch.pieces) {
        const std::span<const WantedBox> loaded = std::span(batch.wanted).subspan(piece.first_wanted);
        clock().add_bytes(make(queue->task(piece.task), piece, loaded));
      }
    });
    clock().stop();
  } while (communicator_.max(queue->is_done() ? 0 : 1) != 0);
}

std::uint64_t DecodingReader::make(const DecodeTask& task, const DecodePiece& piece,
                                   std::span<const WantedBox> loaded) {
  if (task.tensor->origin != Origin::kCast) return decode(task, piece, loaded);
  const std::uint64_t bytes = shard::elements_of(piece.box) * bits_of(task.tensor->dtype) / 8;
  cast_values(checkpoint_.stored.tensors[task.tensor->source].dtype, loaded[0].memory, task.tensor->dtype,
              task.first.at(0).subspan(piece.offset_bytes, bytes));
  return bytes;
}

std::uint64_t DecodingReader::decode(const DecodeTask& task, const DecodePiece& piece,
                                     std::span<const WantedBox> loaded) {
  const CodedPair& pair = view_.pairs[task.tensor->source];
  const quant::Source source{pair.moments->first, pair.moments->shape};
  const std::size_t elements = shard::elements_of(piece.box);
  const std::vector<plan::Run> runs = runs_of_piece(*pair.codec, source.shape, piece.box, task.box);
  std::vector<std::span<const std::byte>> parts;
  for (std::size_t i = 0; i < pair.parts.size(); ++i) parts.push_back(loaded[i].memory);
  const std::span<float> first = place_for(task.first, runs, first_, elements);
  const std::span<float> second = place_for(task.second, runs, second_, elements);
  try {
    for (std::size_t i = 0; i < parts.size(); ++i) {
      quant::check_scales(*pair.codec, pair.moments->parts[i], pair.parts[i], parts[i]);
    }
    pair.codec->decode(source, piece.box, parts, view_.decode, {first, second});
  } catch (const Error& error) {
    throw Error(error.kind(), fmt::format("'{}': {}", base::printable(checkpoint_.directory.string()), error.what()));
  }
  copy_out(first, runs, task.first);
  copy_out(second, runs, task.second);
  return 2 * elements * sizeof(float);
}

std::unique_ptr<TensorReader> make_view_reader(comm::Communicator& communicator, const OpenCheckpoint& checkpoint,
                                               const View& view, ReadOptions options, io::WindowStore* windows) {
  if (view.as_stored) return make_reader(communicator, checkpoint, std::move(options), windows);
  const std::uint64_t half = options.memory_budget_bytes / 2;
  // Blocks must fit: a reader that has too little for them says so, and it should say so of the whole budget only.
  const std::uint64_t block_bytes = checkpoint.blocks ? checkpoint.blocks->block_bytes : format::kDefaultBlockBytes;
  options.memory_budget_bytes = std::max(half, std::min(options.memory_budget_bytes, smallest_budget(block_bytes)));
  return std::make_unique<DecodingReader>(communicator, checkpoint, view,
                                          make_reader(communicator, checkpoint, std::move(options), windows), half);
}

}  // namespace cairn::checkpoint
