// Files that PaddlePaddle's asynchronous saves leave: ".optimizer_weight.done.3" after rank 3 has written its part.
// Data files have their names, and indexes list them, before they are complete.
#pragma once

#include "interop/reading.hpp"

namespace cairn::interop {

/// Throws Error(kFormat) naming the first signal that is missing where there are others, so that the save has not
/// ended. Signals may be in another directory: without any nothing is known.
void check_signals(Reading& reading);

}  // namespace cairn::interop
