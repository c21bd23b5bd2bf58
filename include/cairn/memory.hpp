// Host and device memory.
#pragma once

namespace cairn {

/// The kind of memory behind a pointer. Device memory needs a build with CUDA. It must belong to the current device,
/// and no stream may still be writing it.
enum class Memory { kHost, kDevice };

}  // namespace cairn
