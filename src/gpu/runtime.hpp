// The few calls of a GPU's runtime that Cairn makes, as plain functions on handles.
//
// One interface, two implementations: runtime_cuda.cpp calls CUDA, runtime_absent.cpp belongs to a build without it.
// (The tests have a third, which keeps "device" memory in host memory.) The rest of this layer uses only this
// interface. CUDA is linked statically and opens the driver at the first call, so a program also runs without driver or
// GPU, as availability() reports.
//
// Calls throw cairn::Error(kIo) with CUDA's message if the device refuses, and Error(kUsage) if there is no CUDA. They
// act on the calling thread's current device, and are thread-safe, like CUDA's calls.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace cairn::gpu {

struct Availability {
  int devices = 0;
  std::string reason;  ///< the reason why there is no device, as the end of a sentence; empty if there is a device
};

/// Number of devices that this process can use. Never throws for lack of a GPU.
[[nodiscard]] Availability availability();

/// The CUDA version of this build: "CUDA 13.0", or "no CUDA".
[[nodiscard]] std::string built_with();

/// "NVIDIA H100 80GB HBM3, compute capability 9.0, 79.1 GiB".
[[nodiscard]] std::string describe_device(int device);

/// The kind of memory of a pointer.
enum class MemoryKind {
  kHost,     ///< memory that CUDA does not know, or any memory without CUDA
  kPinned,   ///< host memory that a device can access directly
  kDevice,   ///< memory of a device
  kManaged,  ///< memory that moves between host and device
};

struct MemoryPlace {
  MemoryKind kind = MemoryKind::kHost;
  int device = -1;  ///< for kDevice and kManaged
};

/// Never throws: a pointer that no device knows is host memory.
[[nodiscard]] MemoryPlace place_of(const void* pointer) noexcept;

[[nodiscard]] int current_device();
void set_current_device(int device);

/// A stream of the runtime and an event; null: none.
struct StreamHandle;
struct EventHandle;

/// `rows` rows of `row_bytes`; the strides are the distances between rows in bytes.
struct RowCopy {
  void* to = nullptr;
  std::uint64_t to_stride = 0;
  const void* from = nullptr;
  std::uint64_t from_stride = 0;
  std::uint64_t row_bytes = 0;
  std::uint64_t rows = 0;
};

namespace runtime {

/// The memory is aligned to 256 bytes. `bytes` must not be 0.
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
/// Work that is enqueued from now on starts after the event.
void wait(StreamHandle* stream, EventHandle* event);
/// Milliseconds from one recorded event to another; waits for both.
[[nodiscard]] float elapsed_ms(EventHandle* from, EventHandle* to);

/// Host memory that is not pinned is copied before the call returns, or the call waits.
void copy(void* to, const void* from, std::uint64_t bytes, StreamHandle* stream);
/// As copy(). Requires: not zero bytes, and rows that do not overlap.
void copy_rows(const RowCopy& rows, StreamHandle* stream);
void fill(void* to, unsigned char value, std::uint64_t bytes, StreamHandle* stream);

}  // namespace runtime
}  // namespace cairn::gpu
