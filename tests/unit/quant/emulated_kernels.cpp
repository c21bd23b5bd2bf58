// The kernels' jobs on the emulated device: the sources that nvcc compiles for a GPU, with the 32 lanes of a warp one
// after another. Several warps share the tasks as in a grid: each takes every kWarps-th task.
#include <array>
#include <cstring>

#include "emulated_runtime.hpp"
#include "quant/device_kernels.hpp"
#include "quant/own_block.hpp"

namespace cairn::quant {
namespace {

constexpr int kLanesOfWarp = 32;
constexpr std::uint64_t kWarps = 3;

/// Runs f(task) for all tasks, one warp after another, so that tasks are not in order.
template <class F>
void for_tasks(std::uint64_t tasks, F f) {
  for (std::uint64_t warp = 0; warp < kWarps; ++warp) {
    for (std::uint64_t task = warp; task < tasks; task += kWarps) f(task);
  }
}

struct Memory {
  void load_quad(const float* from, float* out) const { std::memcpy(out, from, 4 * sizeof(float)); }
  void store_bytes(std::byte* to, std::uint32_t bytes) const { std::memcpy(to, &bytes, sizeof bytes); }
  template <class T>
  void raise(T* at, T key) const {
    *at = *at < key ? key : *at;
  }
  template <class T>
  void lower(T* at, T value) const {
    *at = value < *at ? value : *at;
  }
};

struct Warp : Memory {
  template <class T>
  struct PerLane {
    std::array<T, kLanesOfWarp> values;
    T& operator[](int lane) { return values[static_cast<std::size_t>(lane)]; }
  };

  template <class Each>
  void each(Each f) const {
    for (int lane = 0; lane < kLanesOfWarp; ++lane) f(lane);
  }
  template <class Test>
  std::uint32_t ballot(Test f) const {
    std::uint32_t bits = 0;
    each([&](int lane) { bits |= f(lane) ? 1U << lane : 0U; });
    return bits;
  }
  template <class Value>
  void group_max(Value f) const {
    in_groups(f, [](std::int32_t a, std::int32_t b) { return a < b ? b : a; });
  }
  template <class Value>
  void group_min(Value f) const {
    in_groups(f, [](std::int32_t a, std::int32_t b) { return b < a ? b : a; });
  }
  template <class Packing>
  own::Levels levels(std::uint32_t range) const {
    return own::kLevels<Packing::kCodes>[range];
  }
  template <class T>
  void store(std::byte* to, T value) const {
    require_aligned<T>(to);
    std::memcpy(to, &value, sizeof value);
  }

 private:
  template <class T>
  static void require_aligned(const std::byte* at) {
    if (reinterpret_cast<std::uintptr_t>(at) % sizeof(T) != 0) std::abort();  // a GPU faults
  }
  template <class Value, class Reduce>
  void in_groups(Value f, Reduce reduce) const {
    for (int first = 0; first < kLanesOfWarp; first += own::kGroupLanes) {
      std::int32_t found = f(first);
      for (int i = 1; i < own::kGroupLanes; ++i) found = reduce(found, f(first + i));
      for (int i = 0; i < own::kGroupLanes; ++i) f(first + i) = found;
    }
  }
};

std::uint64_t own_tasks(std::uint64_t elements) {
  const std::uint64_t unit = own::kElements * own::kBlocksAtOnce;
  return (elements + unit - 1) / unit;
}

template <class Packing>
void run(const own::EncodeJob& job) {
  Warp warp;
  own::LaneEncoder<Warp, Packing> encoder(warp, job);
  for_tasks(own_tasks(job.elements), [&](std::uint64_t task) { encoder.encode(task * own::kBlocksAtOnce); });
}

template <class F>
void for_tiles(const paddle::Tiles& tiles, F f) {
  const Memory memory;
  for_tasks(tiles.count, [&](std::uint64_t tile) {
    for (int lane = 0; lane < kLanesOfWarp; ++lane) f(paddle::TileCoder<Memory>(memory, tiles, tile, lane));
  });
}

}  // namespace

void own::launch(const Format& format, const EncodeJob& job, gpu::StreamHandle* stream) {
  gpu::emulated::enqueue(stream, [&format, job] { &format == &kQ8 ? run<PackingQ8>(job) : run<PackingQ4>(job); });
}

void paddle::launch(const MeasureJob& job, gpu::StreamHandle* stream) {
  gpu::emulated::enqueue(stream, [job] { for_tiles(job.tiles, [&](const auto& coder) { coder.measure(job); }); });
}

void paddle::launch(Stage stage, const EncodeJob& job, gpu::StreamHandle* stream) {
  gpu::emulated::enqueue(stream, [stage, job] {
    for_tiles(job.tiles, [&](const auto& coder) {
      if (stage == Stage::kO1) return coder.encode_o1(job);
      coder.encode_o2(job);
    });
  });
}

}  // namespace cairn::quant
