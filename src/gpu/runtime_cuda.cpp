// The runtime's calls in a build with CUDA. Apart from the kernels, this is the only file that includes CUDA's headers.
#include <cuda_runtime_api.h>
#include <fmt/core.h>

#include <algorithm>

#include "base/text.hpp"
#include "cairn/error.hpp"
#include "gpu/runtime.hpp"

namespace cairn::gpu {
namespace {

/// cudaDeviceProp::memPitch of every known device: CUDA refuses larger strides.
constexpr std::uint64_t kLargestPitch = (std::uint64_t{1} << 31) - 1;

cudaStream_t native(StreamHandle* stream) { return reinterpret_cast<cudaStream_t>(stream); }
cudaEvent_t native(EventHandle* event) { return reinterpret_cast<cudaEvent_t>(event); }

/// Throws Error(kUsage) for a missing device or driver, and Error(kIo) for any other failure.
[[noreturn]] void fail(cudaError_t status, const std::string& what) {
  const bool is_absent = status == cudaErrorNoDevice || status == cudaErrorInsufficientDriver;
  throw Error(is_absent ? ErrorKind::kUsage : ErrorKind::kIo,
              fmt::format("GPU: {} failed: {} ({})", what, cudaGetErrorString(status), cudaGetErrorName(status)));
}

void check(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  static_cast<void>(cudaGetLastError());  // otherwise a later launch would report the error again
  fail(status, what);
}

}  // namespace

Availability availability() {
  int devices = 0;
  const cudaError_t status = cudaGetDeviceCount(&devices);
  if (status == cudaSuccess && devices > 0) return {devices, ""};
  static_cast<void>(cudaGetLastError());
  if (status == cudaSuccess || status == cudaErrorNoDevice) return {0, "the driver shows no GPU"};
  int driver = 0;
  if (cudaDriverGetVersion(&driver) == cudaSuccess && driver == 0) return {0, "no NVIDIA driver is loaded"};
  return {0, cudaGetErrorString(status)};
}

std::string built_with() { return fmt::format("CUDA {}.{}", CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10); }

std::string describe_device(int device) {
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, device), "asking for a device's properties");
  return fmt::format("{}, compute capability {}.{}, {}", properties.name, properties.major, properties.minor,
                     base::format_size(properties.totalGlobalMem));
}

MemoryPlace place_of(const void* pointer) noexcept {
  cudaPointerAttributes attributes{};
  if (pointer == nullptr) return {};
  if (cudaPointerGetAttributes(&attributes, pointer) != cudaSuccess) {
    static_cast<void>(cudaGetLastError());
    return {};
  }
  switch (attributes.type) {
    case cudaMemoryTypeHost: return {MemoryKind::kPinned, -1};
    case cudaMemoryTypeDevice: return {MemoryKind::kDevice, attributes.device};
    case cudaMemoryTypeManaged: return {MemoryKind::kManaged, attributes.device};
    default: return {};
  }
}

int current_device() {
  int device = 0;
  check(cudaGetDevice(&device), "asking for the current device");
  return device;
}

void set_current_device(int device) { check(cudaSetDevice(device), "choosing a device"); }

namespace runtime {

std::byte* allocate_device(std::uint64_t bytes) {
  void* memory = nullptr;
  const cudaError_t status = cudaMalloc(&memory, bytes);
  if (status != cudaSuccess) {
    static_cast<void>(cudaGetLastError());
    fail(status, fmt::format("allocating {} of device memory", base::format_size(bytes)));
  }
  return static_cast<std::byte*>(memory);
}

void free_device(std::byte* memory) noexcept { static_cast<void>(cudaFree(memory)); }

std::byte* allocate_pinned(std::uint64_t bytes) {
  void* memory = nullptr;
  const cudaError_t status = cudaHostAlloc(&memory, bytes, cudaHostAllocPortable);
  if (status != cudaSuccess) {
    static_cast<void>(cudaGetLastError());
    fail(status, fmt::format("allocating {} of pinned host memory", base::format_size(bytes)));
  }
  return static_cast<std::byte*>(memory);
}

void free_pinned(std::byte* memory) noexcept { static_cast<void>(cudaFreeHost(memory)); }

StreamHandle* create_stream() {
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "making a stream");
  return reinterpret_cast<StreamHandle*>(stream);
}

void destroy_stream(StreamHandle* stream) noexcept { static_cast<void>(cudaStreamDestroy(native(stream))); }

void synchronise(StreamHandle* stream) { check(cudaStreamSynchronize(native(stream)), "work on a stream"); }

EventHandle* create_event() {
  cudaEvent_t event = nullptr;
  check(cudaEventCreate(&event), "making an event");
  return reinterpret_cast<EventHandle*>(event);
}

void destroy_event(EventHandle* event) noexcept { static_cast<void>(cudaEventDestroy(native(event))); }

void record(EventHandle* event, StreamHandle* stream) {
  check(cudaEventRecord(native(event), native(stream)), "recording an event");
}

void wait(StreamHandle* stream, EventHandle* event) {
  check(cudaStreamWaitEvent(native(stream), native(event), 0), "waiting for an event");
}

float elapsed_ms(EventHandle* from, EventHandle* to) {
  float milliseconds = 0;
  check(cudaEventSynchronize(native(from)), "work before an event");
  check(cudaEventSynchronize(native(to)), "work before an event");
  check(cudaEventElapsedTime(&milliseconds, native(from), native(to)), "taking the time between events");
  return milliseconds;
}

void copy(void* to, const void* from, std::uint64_t bytes, StreamHandle* stream) {
  check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, native(stream)), "copying");
}

void copy_rows(const RowCopy& rows, StreamHandle* stream) {
  if (rows.rows == 1 || (rows.to_stride == rows.row_bytes && rows.from_stride == rows.row_bytes)) {
    return copy(rows.to, rows.from, rows.row_bytes * rows.rows, stream);
  }
  if (std::max(rows.to_stride, rows.from_stride) > kLargestPitch) {
    for (std::uint64_t row = 0; row < rows.rows; ++row) {
      copy(static_cast<std::byte*>(rows.to) + row * rows.to_stride,
           static_cast<const std::byte*>(rows.from) + row * rows.from_stride, rows.row_bytes, stream);
    }
    return;
  }
  check(cudaMemcpy2DAsync(rows.to, rows.to_stride, rows.from, rows.from_stride, rows.row_bytes, rows.rows,
                          cudaMemcpyDefault, native(stream)),
        "copying rows");
}

void fill(void* to, unsigned char value, std::uint64_t bytes, StreamHandle* stream) {
  check(cudaMemsetAsync(to, value, bytes, native(stream)), "filling device memory");
}

}  // namespace runtime
}  // namespace cairn::gpu
