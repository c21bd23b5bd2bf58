// Where memory is.
#pragma once

namespace cairn {

/// Where a pointer points. Device memory needs a build with CUDA and a device, is of the device that is current, and is
/// finished: no stream is still writing it.
enum class Memory { kHost, kDevice };

}  // namespace cairn
