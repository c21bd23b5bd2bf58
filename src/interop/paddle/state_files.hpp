// Small files beside the tensors of a PaddlePaddle checkpoint, as values: schedule, trainer, loss scaling, random states.
//
// They are pickles, but for trainer_state.json. No tensor depends on them: what is not understood is not taken over. All
// ranks get the values, so a large one is not taken over either; conversions carry the files along.
#pragma once

#include <string_view>

#include "interop/directory.hpp"
#include "interop/reading.hpp"

namespace cairn::interop {

/// Adds to `values` "scheduler", "scaler", "trainer_state" and "rng_state" (a list over the ranks where there are several),
/// to `sources` their files, and to `left` a line for each file that is not taken over. Takes the step from
/// trainer_state.bin where `step` has none.
void tell_of_state(Reading& reading, About& about);

/// By its name: a file that a trainer reads when it resumes, with one of those values.
bool is_paddle_state_file(std::string_view name);

}  // namespace cairn::interop
