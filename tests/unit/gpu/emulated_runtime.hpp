// A device that is host memory, for tests of what is built on gpu/runtime.hpp.
//
// Its streams are queues: nothing on a stream happens before somebody waits for it (or, with Mode::kAtOnce, everything
// happens at once), so that memory used too early, too late or again too soon shows as wrong bytes. Whoever touches
// "device" memory on the host ends with a segmentation fault; bytes written behind an allocation abort the test when it
// is freed. A program that compiles emulated_runtime.cpp has this device instead of the real ones.
#pragma once

#include <cstdint>
#include <functional>

#include "gpu/runtime.hpp"

namespace cairn::gpu::emulated {

enum class Mode { kAsLateAsPossible, kAtOnce };

/// Forgets all counts and faults. Requires that no stream has work.
void reset(Mode mode);

/// Puts something on a stream, as a kernel is.
void enqueue(StreamHandle* stream, std::function<void()> work);

struct Usage {
  std::uint64_t device_bytes = 0;  ///< allocated now
  std::uint64_t pinned_bytes = 0;
  std::uint64_t streams = 0;
  std::uint64_t most_device_bytes = 0;  ///< since reset()
  std::uint64_t most_pinned_bytes = 0;
};
Usage usage();

/// The work that is done as the `countdown`-th from now (1: the next) fails when its stream is waited for; what was put
/// on the stream after it is lost.
void fail_work(std::uint64_t countdown);

}  // namespace cairn::gpu::emulated
