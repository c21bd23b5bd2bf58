// From a caller's targets to boxes of an open checkpoint.
#pragma once

#include <span>
#include <vector>

#include "cairn/checkpoint.hpp"
#include "checkpoint/load.hpp"
#include "codes/device_memory.hpp"
#include "codes/view.hpp"
#include "directory/open.hpp"

namespace cairn::checkpoint {

/// Rank-local: the targets' boxes as wanted boxes of the view; host memory of `device` stands in for that of devices. Codes
/// and scales are had by their stored names; where a moment has the same name, by their dtype. Throws kNotFound or kState where the view has something else.
std::vector<WantedBox> wanted_boxes(const OpenCheckpoint& opened, const View& view, std::span<const Target> targets,
                                    DeviceMemory& device);

}  // namespace cairn::checkpoint
