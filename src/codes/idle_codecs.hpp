// Codecs that a program requested but that code nothing of its state.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "cairn/checkpoint.hpp"
#include "comm/communicator.hpp"
#include "quant/codec.hpp"

namespace cairn::codes {

/// Collective: a line with the reason for each section of `codecs` that is not in `coded`; the same on all ranks.
/// Both maps must be the same on all ranks.
std::vector<std::string> idle_codecs(comm::Communicator& communicator, std::span<const Source> state,
                                     const std::map<std::string, const quant::Codec*>& codecs,
                                     const std::map<std::string, std::string>& coded);

}  // namespace cairn::codes
