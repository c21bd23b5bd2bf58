// Tied embeddings: two names of one weight.
//
// Of one process PaddlePaddle writes master weights and moments under the last name alone, and so it does without
// merging; the model has both. Whoever resumes asks for either.
#pragma once

#include "interop/directory.hpp"
#include "interop/reading.hpp"

namespace cairn::interop {

/// Where config.json says that embeddings and head are tied, and a section has only one of their names: adds its
/// tensors and codings under the other one, with the same bytes.
void add_tied(Reading& reading, Recognised& out);

}  // namespace cairn::interop
