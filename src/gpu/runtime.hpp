// The few calls of a GPU's runtime that Cairn makes, as plain functions on handles.
//
// One interface, two implementations: runtime_cuda.cpp calls CUDA, runtime_absent.cpp belongs to a build without it.
// (The tests have a third, which keeps "device" memory in host memory.) The rest of this layer uses only this
// interface. CUDA is linked statically and opens the driver at the first call, so a program also runs without a driver
// or a GPU (see availability()).
//
// Calls throw cairn::Error(kIo) with CUDA's message if the device refuses, and Error(kUsage) if there is no CUDA or no
// device. Calls act on the calling thread's current device, and are thread-safe, like CUDA's calls.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace cairn::gpu {

struct Availability {
  int devices = 0;
  std::string reason;  ///< the reason why there is no device, as the end of a sentence; empty if there is a device
};

/// The number of devices that this process can use. Never throws, even without a GPU.
[[nodiscard]] Availability availability();

/// The CUDA version of this build: "CUDA 13.0", or "no CUDA".
[[nodiscard]] std::string built_with();

/// "NVIDIA H100 80GB HBM3, compute capability 9.0, 79.1 GiB".
[[nodiscard]] std::string describe_device(int device);

/// The kind of memory to which a pointer refers.
enum class MemoryKind {
  kHost,     ///< memory unknown to CUDA; in a build without CUDA, all memory
  kPinned,   ///< host memory that a device can access directly
  kDevice,   ///< memory of a device
  kManaged,  ///< memory that moves between host and device
};

struct MemoryPlace {
  MemoryKind kind = MemoryKind::kHost;
  int device = -1;  ///< for kDevice and kManaged
};

/// Never throws: a pointer that CUDA does not know is host memory.
[[nodiscard]] MemoryPlace place_of(const void* pointer) noexcept;

[[nodiscard]] int current_device();
void set_current_device(int device);

/// Handles of the runtime's streams and events; null: none.
struct StreamHandle;
struct EventHandle;

/// A copy of `rows` rows of `row_bytes`; a stride is the distance in bytes from one row's first byte to the next row's.
struct RowCopy {
  void* to = nullptr;
  std::uint64_t to_stride = 0;
  const void* from = nullptr;
  std::uint64_t from_stride = 0;
  std::uint64_t row_bytes = 0;
  std::uint64_t rows = 0;
};

namespace runtime {

/// Device memory and pinned memory are aligned to 256 bytes. `bytes` must not be 0.
[[nodiscard]] std::byte* allocate_device(std::uint64_t bytes);
void free_device(std::byte* memory) noexcept;
[[nodiscard]] std::byte* allocate_pinned(std::uint64_t bytes);
void free_pinned(std::byte* memory) noexcept;

[[nodiscard]] StreamHandle* create_stream();
void destroy_stream(StreamHandle* stream) noexcept;
/// Waits for all work on the stream, and reports its failures.
void synchronise(StreamHandle* stream);

[[nodiscard]] EventHandle* create_event();
void destroy_event(EventHandle* event) noexcept;
void record(EventHandle* event, StreamHandle* stream);
/// Makes work that is later enqueued on the stream wait for the event.
void wait(StreamHandle* stream, EventHandle* event);
/// Milliseconds from one recorded event to another; waits for both.
[[nodiscard]] float elapsed_ms(EventHandle* from, EventHandle* to);

/// Asynchronous if the host memory is pinned. Otherwise the host memory has been read or written when the call returns.
void copy(void* to, const void* from, std::uint64_t bytes, StreamHandle* stream);
/// As copy(). Requires at least one row, at least one byte per row, and rows that do not overlap.
void copy_rows(const RowCopy& rows, StreamHandle* stream);
void fill(void* to, unsigned char value, std::uint64_t bytes, StreamHandle* stream);

}  // namespace runtime
}  // namespace cairn::gpu
