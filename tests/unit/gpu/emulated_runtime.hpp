// A device emulated in host memory, for tests of code that uses gpu/runtime.hpp.
//
// Its streams are queues: no work on a stream is done until a thread waits for it (or, with Mode::kAtOnce,
// all work is done at once), so that memory used too early, too late or again too soon shows as wrong bytes.
// Access to "device" memory on the host ends with a segmentation fault; bytes written past an allocation abort the test
// when it is freed. A program that compiles emulated_runtime.cpp has this device instead of real ones.
#pragma once

#include <cstdint>
#include <functional>

#include "gpu/runtime.hpp"

namespace cairn::gpu::emulated {

enum class Mode { kAsLateAsPossible, kAtOnce };

/// Sets the mode, sets the maxima of Usage to the current bytes, cancels fail_work(). Requires that no stream has work.
void reset(Mode mode);

/// Puts work on a stream, as a kernel launch does.
void enqueue(StreamHandle* stream, std::function<void()> work);

struct Usage {
  std::uint64_t device_bytes = 0;  ///< allocated now
  std::uint64_t pinned_bytes = 0;
  std::uint64_t streams = 0;
  std::uint64_t most_device_bytes = 0;  ///< since reset()
  std::uint64_t most_pinned_bytes = 0;
};
Usage usage();

/// Makes the `countdown`-th work that is done from now on (1: the next) fail;
/// work behind it in the queue of its stream is lost.
void fail_work(std::uint64_t countdown);

}  // namespace cairn::gpu::emulated
