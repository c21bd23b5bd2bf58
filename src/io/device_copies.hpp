// Copies between device memory and the host, through a few pinned slots of a fixed size.
//
// The exchange, bypass I/O and decoding move bytes of shards in device memory piece by piece, so that no shard needs
// host memory for a whole copy. A copy to the host first goes into a slot; when the slot is needed again, or at
// settle(), the bytes move to their final place. A copy to the device puts the host's bytes into a slot and returns.
// The slots' streams run concurrently.
//
// A device can refuse a copy at any time, on one rank alone, in the middle of a round that no rank may leave. So copies
// of rows do not throw: the first error is kept, later copies are dropped, and finish() throws the error where ranks
// agree.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <span>
#include <vector>

#include "gpu/stream.hpp"
#include "io/copy_runs.hpp"

namespace cairn::io {

/// Uses the device that is current at the first copy; until then the object allocates no memory and needs no device.
/// Rank-local; for one thread at a time.
class DeviceCopies {
 public:
  static constexpr std::size_t kSlots = 8;
  static constexpr std::uint64_t kSlotUnit = 4096;
  static constexpr std::uint64_t kLeastBytes = kSlots * kSlotUnit;

  /// Limits the pinned memory to `bytes`. The first copy allocates this memory; a failure is an error of that copy.
  /// Throws Error(kInternal) for fewer than kLeastBytes.
  explicit DeviceCopies(std::uint64_t bytes);
  ~DeviceCopies();
  DeviceCopies(const DeviceCopies&) = delete;
  DeviceCopies& operator=(const DeviceCopies&) = delete;

  [[nodiscard]] std::uint64_t slot_bytes() const { return slot_bytes_; }
  /// Size of all slots together.
  [[nodiscard]] std::uint64_t bytes() const { return kSlots * slot_bytes_; }

  /// Copies `rows` rows of `row_bytes` each. The bytes are sure to be on the host only after settle(). Requires: the
  /// device is not writing the rows, not even for an earlier to_device() that was not settled.
  void to_host(const Strided<std::byte*>& host, const Strided<const std::byte*>& device, std::uint64_t row_bytes,
               std::uint64_t rows) noexcept;
  /// The bytes are on the device after settle(); the host's memory may change at once.
  void to_device(const Strided<std::byte*>& device, const Strided<const std::byte*>& host, std::uint64_t row_bytes,
                 std::uint64_t rows) noexcept;
  /// Waits until all bytes are in their places; keeps an error for finish().
  void settle() noexcept;
  /// settle(), then throws the kept error, if any. The object can be used again.
  void finish();

  /// Copies a piece of at most slot_bytes() to the host; valid until the next call. Throws Error(kIo), or a kept error.
  [[nodiscard]] std::span<const std::byte> fetch(gpu::ConstDeviceSpan from);
  /// room() returns host memory for a piece of at most slot_bytes(); put() then copies the piece to the device. Make no
  /// other call in between. The bytes are on the device after settle(). Both throw Error(kIo), or a kept error.
  [[nodiscard]] std::span<std::byte> room(std::uint64_t bytes);
  void put(gpu::DeviceSpan to);

 private:
  /// Rows in a slot, and their destination.
  struct Landing {
    Strided<std::byte*> host;
    const std::byte* in_slot = nullptr;
    std::uint64_t row_bytes = 0;
    std::uint64_t rows = 0;
  };
  struct Slot {
    gpu::Stream stream;
    std::span<std::byte> bytes;
    std::uint64_t used = 0;
    std::vector<Landing> landings;
  };
  /// Some whole rows, or a part of one row.
  struct Piece {
    std::uint64_t row = 0;
    std::uint64_t inside = 0;  ///< bytes of the row before the piece
    std::uint64_t row_bytes = 0;
    std::uint64_t rows = 0;
  };
  void take_memory();
  template <class Copy>
  void cut(std::uint64_t row_bytes, std::uint64_t rows, const Copy& copy) noexcept;
  Slot& with_room(std::uint64_t bytes);
  Slot& next_empty();
  static void empty(Slot& slot);
  void require_usable(std::uint64_t bytes);

  std::uint64_t slot_bytes_;
  gpu::PinnedBuffer pinned_;
  std::vector<Slot> slots_;  // empty before the first use
  std::size_t at_ = 0;
  std::exception_ptr error_;
};

}  // namespace cairn::io
