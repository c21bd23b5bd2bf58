// Hugging Face directories: file sets of whole tensors, with or without an index.
#pragma once

#include "interop/dialect.hpp"

namespace cairn::interop {

const Dialect& hugging_face_dialect();
const Form& hugging_face_form();

}  // namespace cairn::interop
