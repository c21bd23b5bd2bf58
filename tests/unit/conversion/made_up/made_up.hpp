// A hook of the made-up form.
#pragma once

#include <functional>

#include "plan/tensor_map.hpp"

namespace cairn::interop {

/// If set, replaces the form's map.
std::function<plan::TensorMap(const plan::Catalog&)>& made_up_map();

}  // namespace cairn::interop
