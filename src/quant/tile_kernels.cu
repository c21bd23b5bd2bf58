// The kernels of Paddle's codecs: they run paddle_lanes.hpp on warps. A warp processes one tile at a time and continues
// in steps of the grid.
#include "quant/device_kernels.hpp"
#include "quant/device_launch.cuh"
#include "quant/paddle_lanes.hpp"

namespace cairn::quant::paddle {
namespace {

using device::check;
using device::kThreads;

/// Calls f(coder) for each tile of this warp.
template <bool kAligned, class F>
__device__ void for_tiles(const Tiles& tiles, F f) {
  const device::LaneMemory<kAligned> memory;
  const std::uint64_t count = tiles.count;
  for (std::uint64_t tile = device::first_task(); tile < count; tile += device::task_step()) {
    f(TileCoder<device::LaneMemory<kAligned>>(memory, tiles, tile, device::lane_number()));
  }
}

template <bool kAligned>
__global__ void __launch_bounds__(kThreads) measure(const MeasureJob job) {
  for_tiles<kAligned>(job.tiles, [&](const auto& coder) { coder.measure(job); });
}

template <Stage stage, bool kAligned>
__global__ void __launch_bounds__(kThreads) encode(const EncodeJob job) {
  for_tiles<kAligned>(job.tiles, [&](const auto& coder) {
    if constexpr (stage == Stage::kO1) {
      coder.encode_o1(job);
    } else {
      coder.encode_o2(job);
    }
  });
}

/// Whether four floats can be read at once, and four codes written at once, from the beginning of every row on.
bool is_aligned(const Tiles& tiles, const void* m, const void* v, const void* first, const void* second) {
  return tiles.columns % 4 == 0 && device::is_aligned(m, 16) && device::is_aligned(v, 16) &&
         device::is_aligned(first, 4) && device::is_aligned(second, 4);
}

template <class Start>
void start_kernel(const Tiles& tiles, bool aligned, Start start) {
  if (tiles.elements == 0) return;
  if (aligned) {
    start(device::grid_for(tiles.count), std::true_type());
  } else {
    start(device::grid_for(tiles.count), std::false_type());
  }
  check(cudaGetLastError(), "starting a kernel");
}

cudaStream_t native(gpu::StreamHandle* stream) { return reinterpret_cast<cudaStream_t>(stream); }

}  // namespace

void launch(const MeasureJob& job, gpu::StreamHandle* stream) {
  start_kernel(job.tiles, is_aligned(job.tiles, job.m, job.v, nullptr, nullptr), [&](unsigned grid, auto aligned) {
    measure<aligned.value><<<grid, kThreads, 0, native(stream)>>>(job);
  });
}

void launch(Stage stage, const EncodeJob& job, gpu::StreamHandle* stream) {
  start_kernel(job.tiles, is_aligned(job.tiles, job.m, job.v, job.first, job.second), [&](unsigned grid, auto aligned) {
    if (stage == Stage::kO1) {
      encode<Stage::kO1, aligned.value><<<grid, kThreads, 0, native(stream)>>>(job);
    } else {
      encode<Stage::kO2, aligned.value><<<grid, kThreads, 0, native(stream)>>>(job);
    }
  });
}

}  // namespace cairn::quant::paddle
