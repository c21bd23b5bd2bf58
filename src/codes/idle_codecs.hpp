// Codecs that a program requested, although its state has nothing for them to code.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "cairn/checkpoint.hpp"
#include "comm/communicator.hpp"
#include "quant/codec.hpp"

namespace cairn::codes {

/// Collective. For each section of `codecs` that is not in `coded`, a line with the reason; the same on all ranks. Both
/// maps must be the same on all ranks.
std::vector<std::string> idle_codecs(comm::Communicator& communicator, std::span<const Source> state,
                                     const std::map<std::string, const quant::Codec*>& codecs,
                                     const std::map<std::string, std::string>& coded);

}  // namespace cairn::codes
