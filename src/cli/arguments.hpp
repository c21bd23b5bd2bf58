// Values of command line options that need more than a number: key=value pairs, layouts, alignments.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "comm/communicator.hpp"

namespace cairn::cli {

/// {"key": "value"} of "key=value" words. Throws Error(kUsage) for a word without '=', an empty key or a key given twice.
std::map<std::string, std::string> parse_hints(const std::vector<std::string>& words);

/// Throws Error(kUsage) when the bytes are no power of two from 8 to 1 GiB.
void check_alignment(std::uint64_t bytes);

/// Throws Error(kUsage) when the bytes are 0. `option` is named.
void check_positive(std::uint64_t bytes, std::string_view option);

/// Collective. The argument itself, or the content of the file of an "@file" argument, which rank 0 reads.
std::string text_or_file(comm::Communicator& communicator, const std::string& argument);

/// Collective. Layout text of an argument: a short form, or "@file.json". The text that comes back is
/// valid (shard::Layout::from_text takes it); Error(kUsage) otherwise.
std::string layout_text(comm::Communicator& communicator, const std::string& argument);

}  // namespace cairn::cli
