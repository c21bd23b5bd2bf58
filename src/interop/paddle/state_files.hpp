// Small files of a PaddlePaddle checkpoint, as values: schedule, trainer, loss scaling, random states.
//
// All except trainer_state.json are pickles. No tensor depends on them, so unknown content is left out. All ranks
// get the values, so large values are also left out; conversions carry the files.
#pragma once

#include <string_view>

#include "interop/directory.hpp"
#include "interop/reading.hpp"

namespace cairn::interop {

/// Adds "scheduler", "scaler", "trainer_state" and "rng_state" (a list over several ranks) to `values`, their files to
/// `sources`, and to `left` a line for each file that is left out. Takes the step from trainer_state.bin if `step` is
/// empty.
void tell_of_state(Reading& reading, About& about);

/// Whether, by its name, the file has one of these values, which a trainer reads when it resumes.
bool is_paddle_state_file(std::string_view name);

}  // namespace cairn::interop
