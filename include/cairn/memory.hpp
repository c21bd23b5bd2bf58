// Host and device memory.
#pragma once

namespace cairn {

/// The kind of memory behind a pointer. Device memory needs a build with CUDA, and must belong to the current device.
/// No stream may still be writing it.
enum class Memory { kHost, kDevice };

}  // namespace cairn
