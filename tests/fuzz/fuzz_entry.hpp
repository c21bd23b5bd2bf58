// One function that gives any bytes to every parser of the format layer. Shared by libFuzzer and by the replay in
// ctest.
#pragma once

#include <cstddef>
#include <span>

namespace cairn::fuzz {

/// A parser may refuse with cairn::Error. What it accepts must survive encoding and parsing again. Throws
/// std::logic_error when that, or the form of an error message, is violated; anything else is a crash.
void feed_all_parsers(std::span<const std::byte> input);

}  // namespace cairn::fuzz
