// Host and device memory.
#pragma once

namespace cairn {

/// What a pointer points to. Device memory needs a build with CUDA and a device, must belong to the current device, and
/// must be complete: no stream may still be writing it.
enum class Memory { kHost, kDevice };

}  // namespace cairn
