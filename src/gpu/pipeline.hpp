// Pieces between a device and the host: while one piece is computed and copied, the caller works on the one before.
//
// Each slot of the pipeline has a stream, pinned host memory and scratch memory on the device. What belongs to a piece
// - the kernel, the copy - goes to its slot's stream one after the other; the slots' streams go side by side, and a
// slot is used again only when the caller is done with its piece. All memory is taken once, within the budget.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "gpu/stream.hpp"

namespace cairn::gpu {

struct PipelineOptions {
  std::uint64_t budget_bytes = 64ULL << 20;  ///< of pinned memory, and as much of the device's
  unsigned slots = 2;                        ///< pieces under way at a time
  bool has_scratch = true;                   ///< false: nothing is computed, only copied; no device memory is taken
};

/// On the device that is current when it is made; use it with that device current. Rank-local; for one thread at a
/// time.
class Pipeline {
 public:
  /// Throws Error(kUsage) when there is no device or the budget is below 4 KiB a slot, Error(kIo) when memory is
  /// refused.
  explicit Pipeline(const PipelineOptions& options);
  ~Pipeline();
  Pipeline(const Pipeline&) = delete;
  Pipeline& operator=(const Pipeline&) = delete;

  /// The most bytes that a piece may have; a multiple of 4 KiB.
  [[nodiscard]] std::uint64_t piece_bytes() const { return piece_bytes_; }

  /// How many pieces are under way at a time.
  [[nodiscard]] std::uint64_t slots() const { return slots_.size(); }

  /// Puts on the stream what fills `scratch` (empty without has_scratch), and returns the bytes to copy: in scratch, or
  /// anywhere in device memory; at most piece_bytes().
  using Produce = std::function<ConstDeviceSpan(std::uint64_t piece, DeviceSpan scratch, const Stream& stream)>;
  /// Takes the bytes on the host; they go when it returns.
  using Consume = std::function<void(std::uint64_t piece, std::span<const std::byte> bytes)>;
  /// Pieces 0 .. pieces - 1, in order. When a call throws, everything under way is awaited and the exception goes on.
  void to_host(std::uint64_t pieces, const Produce& produce, const Consume& consume);

  /// Fills host memory (piece_bytes() of it) and returns where its first bytes go: a span of device memory, or of no
  /// data (only a size): then they go to scratch.
  using Provide = std::function<DeviceSpan(std::uint64_t piece, std::span<std::byte> room)>;
  /// Puts on the stream what is done with the bytes when they are there.
  using Use = std::function<void(std::uint64_t piece, ConstDeviceSpan bytes, const Stream& stream)>;
  /// Called when the piece's work is done, in order; may be empty.
  using Done = std::function<void(std::uint64_t piece)>;
  void to_device(std::uint64_t pieces, const Provide& provide, const Use& use, const Done& done = {});

 private:
  struct Slot {
    Stream stream;
    PinnedBuffer pinned;
    DeviceBuffer scratch;
    std::uint64_t filled = 0;
  };
  /// start(piece, slot) puts work on the slot's stream, finish(piece, slot) runs after it.
  template <class Start, class Finish>
  void run(std::uint64_t pieces, Start start, Finish finish);
  void settle() noexcept;

  std::uint64_t piece_bytes_;
  std::vector<Slot> slots_;
};

/// Copies device memory to the host piece by piece: consume(offset, bytes) in order. The memory is ready: nothing is
/// still writing it.
void copy_to_host(Pipeline& pipeline, ConstDeviceSpan from,
                  const std::function<void(std::uint64_t offset, std::span<const std::byte>)>& consume);
void copy_to_host(Pipeline& pipeline, ConstDeviceSpan from, std::span<std::byte> to);

/// Copies to device memory what provide(offset, room) fills in, piece by piece in order. On return the bytes are there.
void copy_to_device(Pipeline& pipeline, DeviceSpan to,
                    const std::function<void(std::uint64_t offset, std::span<std::byte> room)>& provide);
void copy_to_device(Pipeline& pipeline, DeviceSpan to, std::span<const std::byte> from);

}  // namespace cairn::gpu
