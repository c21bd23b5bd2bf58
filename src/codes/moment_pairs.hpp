// A rank's part of a save, sorted into pairs of moments for a codec, and the rest. Pure.
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

/// The pair to which a name belongs, or nothing: the name has "exp_avg" or "exp_avg_sq" (torch, Megatron, DeepSpeed),
/// "moment1_0" or "moment2_0", "moment1" or "moment2", "adam_m" or "adam_v" as a separate word, that is, without a
/// letter, digit or '_' next to it. The last such word counts.
std::optional<quant::MomentNames> moments_of(std::string_view name);

/// Two sources that hold the same boxes of the two moments of one parameter.
struct MomentPair {
  std::uint32_t first = 0;  ///< numbers of sources
  std::uint32_t second = 0;
  const quant::Codec* codec = nullptr;
};

struct SortedState {
  std::vector<MomentPair> pairs;    ///< in the order of the first moments
  std::vector<std::uint32_t> rest;  ///< sources that are saved uncoded, ascending
};

/// The codecs by section, without "off". Throws Error(kUsage) for an unknown codec.
std::map<std::string, const quant::Codec*> codecs_of(const Quantisation& quantisation);

/// Moments of shapes that the codec does not code belong to the rest. Throws Error(kUsage) for moments that are not
/// F32, and Error(kState) if the two moments on a rank differ in boxes or shape, or one is missing; both errors name
/// the tensor.
SortedState sort_state(std::span<const Source> state, const std::map<std::string, const quant::Codec*>& codecs);

}  // namespace cairn::codes
