// Host and device memory.
#pragma once

namespace cairn {

/// The kind of memory behind a pointer. Device memory needs a build with CUDA, must belong to the current device, and
/// must be ready at the call: no stream may still be writing to the memory.
enum class Memory { kHost, kDevice };

}  // namespace cairn
