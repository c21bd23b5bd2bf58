// Common to both kernel files: the number of threads of a kernel, and the memory accesses of a lane.
//
// Values are used only once, so LaneMemory's loads and vector stores are marked as streaming and leave the caches to
// other data. Vector loads need 16-byte alignment, vector stores 4; without kAligned there are four single accesses.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>

#include "cairn/error.hpp"

namespace cairn::quant::device {

inline constexpr unsigned kThreads = 128;
inline constexpr unsigned kWarpsInBlock = kThreads / 32;
/// Thread blocks for each multiprocessor: several times the number of resident ones, so that the last ones end at about
/// the same time.
inline constexpr std::uint64_t kBlocksPerProcessor = 32;

inline void check(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  static_cast<void>(cudaGetLastError());
  throw Error(ErrorKind::kIo, std::string("GPU: ") + what + " failed: " + cudaGetErrorString(status) + " (" +
                                  cudaGetErrorName(status) + ")");
}

/// Number of thread blocks for `tasks`, one for each warp; each warp continues with later tasks in steps of the grid.
inline unsigned grid_for(std::uint64_t tasks) {
  int device = 0;
  int processors = 0;
  check(cudaGetDevice(&device), "asking for the current device");
  check(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device), "asking for multiprocessors");
  const std::uint64_t needed = (tasks + kWarpsInBlock - 1) / kWarpsInBlock;
  return static_cast<unsigned>(std::min(needed, kBlocksPerProcessor * static_cast<std::uint64_t>(processors)));
}

inline bool is_aligned(const void* pointer, std::size_t bytes) {
  return reinterpret_cast<std::uintptr_t>(pointer) % bytes == 0;
}

inline __device__ std::uint64_t first_task() {
  return static_cast<std::uint64_t>(blockIdx.x) * kWarpsInBlock + threadIdx.x / 32;
}
inline __device__ std::uint64_t task_step() { return static_cast<std::uint64_t>(gridDim.x) * kWarpsInBlock; }
inline __device__ int lane_number() { return static_cast<int>(threadIdx.x % 32); }

template <bool kAligned>
struct LaneMemory {
  __device__ void load_quad(const float* from, float* out) const {
    if constexpr (kAligned) {
      const float4 quad = __ldcs(reinterpret_cast<const float4*>(from));
      out[0] = quad.x;
      out[1] = quad.y;
      out[2] = quad.z;
      out[3] = quad.w;
    } else {
      for (int i = 0; i < 4; ++i) out[i] = __ldcs(from + i);
    }
  }
  __device__ void store_bytes(std::byte* to, std::uint32_t bytes) const {
    if constexpr (kAligned) {
      __stcs(reinterpret_cast<unsigned*>(to), bytes);
    } else {
      for (int i = 0; i < 4; ++i) to[i] = static_cast<std::byte>(bytes >> 8 * i & 0xff);
    }
  }
  __device__ void raise(std::uint32_t* at, std::uint32_t key) const { atomicMax(at, key); }
  __device__ void lower(std::uint64_t* at, std::uint64_t value) const {
    atomicMin(reinterpret_cast<unsigned long long*>(at), static_cast<unsigned long long>(value));
  }
};

}  // namespace cairn::quant::device
