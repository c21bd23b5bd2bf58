// Tied embeddings: one weight with two names.
//
// A single process of PaddlePaddle writes master weights and moments only under the last name,
// and so does a save without merging; the model has both names. A program that resumes may request either name.
#pragma once

#include "interop/directory.hpp"
#include "interop/reading.hpp"

namespace cairn::interop {

/// If config.json says that embedding and head are tied, and a section has only one of the two names:
/// adds that name's tensors and codings under the other name, with the same bytes.
void add_tied(Reading& reading, Recognised& out);

}  // namespace cairn::interop
