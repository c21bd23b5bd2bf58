// Sorts a rank's part of a save into pairs of moments for codecs, and the rest. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cairn/checkpoint.hpp"
#include "quant/codec.hpp"

namespace cairn::codes {

// Recognises the two moments of Adam among the tensors of an optimizer, by their names alone. Pure.

/// The pair to which a name belongs, or nothing. The name must have one of these words, without a letter, digit or '_'
/// next to it: "exp_avg", "exp_avg_sq" (torch, Megatron, DeepSpeed), "moment1_0", "moment2_0", "moment1", "moment2",
/// "adam_m", "adam_v". If a word occurs more than once, its last occurrence counts.
std::optional<quant::MomentNames> moments_of(std::string_view name);

/// Two sources: both moments of one parameter, in the same boxes.
struct MomentPair {
  std::uint32_t first = 0;  ///< `first` and `second` are numbers of sources
  std::uint32_t second = 0;
  const quant::Codec* codec = nullptr;
};

struct SortedState {
  std::vector<MomentPair> pairs;    ///< in the order of the first moments
  std::vector<std::uint32_t> rest;  ///< sources that are saved uncoded, ascending
};

/// The codecs by section, without "off"; none with disable_ckpt_quant. Throws Error(kUsage) for an unknown codec.
std::map<std::string, const quant::Codec*> codecs_of(const Quantisation& quantisation);

/// Moments whose shape the codec does not code belong to the rest. Throws Error(kUsage) for moments that are not F32,
/// and Error(kState) if the two moments on a rank differ in shape, boxes or kind of memory, or one is missing; both
/// errors name the tensor.
SortedState sort_state(std::span<const Source> state, const std::map<std::string, const quant::Codec*>& codecs);

}  // namespace cairn::codes
