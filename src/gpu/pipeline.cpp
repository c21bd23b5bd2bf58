// With two slots, the order is start 0, start 1, finish 0, start 2, finish 1, ... so that piece i + 1 is in progress
// while the caller is in finish(i).
#include "gpu/pipeline.hpp"

#include <algorithm>
#include <cstring>
#include <string>

#include "base/checked.hpp"
#include "base/internal_error.hpp"
#include "cairn/error.hpp"

namespace cairn::gpu {
namespace {

constexpr std::uint64_t kPieceUnit = 4096;

std::uint64_t piece_of(const PipelineOptions& options) {
  const std::uint64_t piece = options.slots == 0 ? 0 : options.budget_bytes / options.slots / kPieceUnit * kPieceUnit;
  if (piece != 0) return piece;
  throw Error(ErrorKind::kUsage, "GPU pipeline: a budget of " + std::to_string(options.budget_bytes) + " bytes for " +
                                     std::to_string(options.slots) + " pieces at a time; it takes 4096 bytes each");
}

void require_fit(std::uint64_t bytes, std::uint64_t most) {
  if (bytes <= most) return;
  throw base::internal_error("a piece of " + std::to_string(bytes) + " bytes in a GPU pipeline for pieces of " +
                             std::to_string(most));
}

}  // namespace

Pipeline::Pipeline(const PipelineOptions& options) : piece_bytes_(piece_of(options)) {
  slots_.reserve(options.slots);
  for (unsigned i = 0; i < options.slots; ++i) {
    slots_.push_back({Stream(), PinnedBuffer(piece_bytes_), DeviceBuffer(options.has_scratch ? piece_bytes_ : 0), 0});
  }
}

Pipeline::~Pipeline() { settle(); }

void Pipeline::settle() noexcept {
  for (const Slot& slot : slots_) {
    try {
      slot.stream.synchronise();
    } catch (const std::exception&) {  // the caller already gets this failure, or does not need it
    }
  }
}

void Pipeline::to_host(std::uint64_t pieces, const Produce& produce, const Consume& consume) {
  const std::uint64_t slots = slots_.size();
  const auto finish = [&](std::uint64_t piece) {
    const Slot& slot = slots_[piece % slots];
    slot.stream.synchronise();
    consume(piece, slot.pinned.span().first(slot.filled));
  };
  try {
    for (std::uint64_t piece = 0; piece < pieces; ++piece) {
      if (piece >= slots) finish(piece - slots);
      Slot& slot = slots_[piece % slots];
      const ConstDeviceSpan bytes = produce(piece, slot.scratch.span(), slot.stream);
      require_fit(bytes.size, piece_bytes_);
      slot.filled = bytes.size;
      slot.stream.copy(slot.pinned.span().first(bytes.size), bytes);
    }
    for (std::uint64_t piece = pieces - std::min(pieces, slots); piece < pieces; ++piece) finish(piece);
  } catch (...) {
    settle();
    throw;
  }
}

void copy_to_host(Pipeline& pipeline, ConstDeviceSpan from,
                  const std::function<void(std::uint64_t offset, std::span<const std::byte>)>& consume) {
  const std::uint64_t piece_bytes = pipeline.piece_bytes();
  pipeline.to_host(
      base::ceil_div(from.size, piece_bytes),
      [&](std::uint64_t piece, DeviceSpan, const Stream&) {
        const std::uint64_t begin = piece * piece_bytes;
        return from.subspan(begin, std::min(piece_bytes, from.size - begin));
      },
      [&](std::uint64_t piece, std::span<const std::byte> bytes) { consume(piece * piece_bytes, bytes); });
}

void copy_to_host(Pipeline& pipeline, ConstDeviceSpan from, std::span<std::byte> to) {
  require_fit(from.size, to.size());
  copy_to_host(pipeline, from, [&](std::uint64_t offset, std::span<const std::byte> bytes) {
    std::memcpy(to.data() + offset, bytes.data(), bytes.size());
  });
}

}  // namespace cairn::gpu
