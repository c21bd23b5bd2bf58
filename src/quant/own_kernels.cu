// The kernels of q8 and q4: they run own_lanes.hpp on warps. A warp codes four blocks at a time and continues in steps
// of the grid.
#include "quant/device_kernels.hpp"
#include "quant/device_launch.cuh"
#include "quant/own_block.hpp"
#include "quant/own_lanes.hpp"

namespace cairn::quant::own {
namespace {

using device::check;
using device::kThreads;

__constant__ const std::array<Levels, kRangeCodes> kLevelsQ8 = kLevels<PackingQ8::kCodes>;
__constant__ const std::array<Levels, kRangeCodes> kLevelsQ4 = kLevels<PackingQ4::kCodes>;

/// The policy of own_lanes.hpp: a lane of the hardware has one value of each PerLane.
template <bool kAligned>
struct Warp : device::LaneMemory<kAligned> {
  template <class T>
  struct PerLane {
    T value;
    __device__ T& operator[](int) { return value; }
  };
  static constexpr unsigned kAll = ~0U;

  template <class Each>
  __device__ void each(Each f) const {
    f(device::lane_number());
  }
  template <class Test>
  __device__ std::uint32_t ballot(Test f) const {
    return __ballot_sync(kAll, f(device::lane_number()));
  }
  template <class Value>
  __device__ void group_max(Value f) const {
    std::int32_t& value = f(device::lane_number());
    for (int step = 1; step < kGroupLanes; step *= 2) value = larger(value, __shfl_xor_sync(kAll, value, step));
  }
  template <class Value>
  __device__ void group_min(Value f) const {
    std::int32_t& value = f(device::lane_number());
    for (int step = 1; step < kGroupLanes; step *= 2) value = smaller(value, __shfl_xor_sync(kAll, value, step));
  }
  template <class Packing>
  __device__ Levels levels(std::uint32_t range) const {
    if constexpr (Packing::kCodes == PackingQ8::kCodes) return kLevelsQ8[range];
    return kLevelsQ4[range];
  }
  template <class T>
  __device__ void store(std::byte* to, T value) const {
    *reinterpret_cast<T*>(to) = value;
  }
};

template <class Packing, bool kAligned>
__global__ void __launch_bounds__(kThreads, 4) encode(const EncodeJob job, const std::uint64_t tasks) {
  Warp<kAligned> warp;
  LaneEncoder<Warp<kAligned>, Packing> encoder(warp, job);
  for (std::uint64_t task = device::first_task(); task < tasks; task += device::task_step()) {
    encoder.encode(task * kBlocksAtOnce);
  }
}

std::uint64_t tasks_of(std::uint64_t elements) {
  constexpr std::uint64_t kTaskElements = kElements * kBlocksAtOnce;
  return (elements + kTaskElements - 1) / kTaskElements;
}

}  // namespace

void launch(const Format& format, const EncodeJob& job, gpu::StreamHandle* stream) {
  const std::uint64_t tasks = tasks_of(job.elements);
  if (tasks == 0) return;
  const auto start = [&](auto packing, auto aligned) {
    encode<decltype(packing), aligned.value>
        <<<device::grid_for(tasks), kThreads, 0, reinterpret_cast<cudaStream_t>(stream)>>>(job, tasks);
  };
  const auto with = [&](auto packing) {
    if (device::is_aligned(job.m, 16) && device::is_aligned(job.v, 16)) return start(packing, std::true_type());
    start(packing, std::false_type());
  };
  if (&format == &kQ8) {
    with(PackingQ8());
  } else {
    with(PackingQ4());
  }
  check(cudaGetLastError(), "starting a kernel");
}

}  // namespace cairn::quant::own
