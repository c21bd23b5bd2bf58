// Which tensors of an optimizer are the two moments of Adam, by their names alone. Pure.
#pragma once

#include <optional>
#include <string_view>

#include "quant/whole.hpp"

namespace cairn::checkpoint {

/// The pair that a name belongs to, or nothing: it has "exp_avg" or "exp_avg_sq" (torch, Megatron, DeepSpeed), "moment1_0"
/// or "moment2_0" (PaddlePaddle), "moment1" or "moment2", "adam_m" or "adam_v" (MindSpore) as a word of its own, that is
/// without a letter, digit or '_' beside it. The last such word counts.
std::optional<quant::MomentNames> moments_of(std::string_view name);

}  // namespace cairn::checkpoint
