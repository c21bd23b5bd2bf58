// Transfers pieces from a device to the host: the caller works on one piece while the next is computed and copied.
//
// Each slot of the pipeline has a stream, pinned host memory and scratch memory on the device. The kernel and the copy
// of a piece run one after the other on its slot's stream; the streams run concurrently. A slot is reused when the
// caller is done with its piece. All memory is allocated once, within the budget.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "gpu/stream.hpp"

namespace cairn::gpu {

struct PipelineOptions {
  std::uint64_t budget_bytes = 64ULL << 20;  ///< limit on pinned memory, and the same limit on device memory
  unsigned slots = 2;                        ///< number of pieces in progress at a time
  bool has_scratch = true;                   ///< false: for copies without kernels; uses no device memory
};

/// Belongs to the device that is current at construction and must be so in later calls. For one thread at a time.
class Pipeline {
 public:
  /// Throws Error(kUsage) without a device or for a budget below 4 KiB per slot, Error(kIo) if memory is refused.
  explicit Pipeline(const PipelineOptions& options);
  ~Pipeline();
  Pipeline(const Pipeline&) = delete;
  Pipeline& operator=(const Pipeline&) = delete;

  /// Largest piece in bytes; a multiple of 4 KiB.
  [[nodiscard]] std::uint64_t piece_bytes() const { return piece_bytes_; }

  /// Number of pieces in progress at a time.
  [[nodiscard]] std::uint64_t slots() const { return slots_.size(); }

  /// Enqueues the work that fills `scratch` (empty without has_scratch), and returns the bytes to copy. They are in
  /// `scratch` or elsewhere in device memory, and at most piece_bytes().
  using Produce = std::function<ConstDeviceSpan(std::uint64_t piece, DeviceSpan scratch, const Stream& stream)>;
  /// Receives the bytes on the host, which are valid only during the call.
  using Consume = std::function<void(std::uint64_t piece, std::span<const std::byte> bytes)>;
  /// Transfers pieces 0 to pieces - 1, in order. If a callback throws, waits for all running work and rethrows.
  void to_host(std::uint64_t pieces, const Produce& produce, const Consume& consume);

 private:
  struct Slot {
    Stream stream;
    PinnedBuffer pinned;
    DeviceBuffer scratch;
    std::uint64_t filled = 0;
  };
  void settle() noexcept;

  std::uint64_t piece_bytes_;
  std::vector<Slot> slots_;
};

/// Copies device memory to the host piece by piece: consume(offset, bytes) in order. No stream may still write to it.
void copy_to_host(Pipeline& pipeline, ConstDeviceSpan from,
                  const std::function<void(std::uint64_t offset, std::span<const std::byte>)>& consume);
void copy_to_host(Pipeline& pipeline, ConstDeviceSpan from, std::span<std::byte> to);

}  // namespace cairn::gpu
