// One function that gives any bytes to every parser of a layer. It is defined in format_entry.cpp, pickle_entry.cpp,
// shard_entry.cpp and directory_entry.cpp, and called by libFuzzer and by the replay in ctest.
#pragma once

#include <cstddef>
#include <span>

namespace cairn::fuzz {

/// A parser may refuse its input with cairn::Error. Accepted input must survive encoding and parsing again, and its
/// boxes must lie inside their tensors. Throws std::logic_error if one of these, or the form of an error message, is
/// violated; any other exception is a crash.
void feed_all_parsers(std::span<const std::byte> input);

}  // namespace cairn::fuzz
