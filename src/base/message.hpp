// Where an error message begins: the path or the place in a file, on one line.
#pragma once

#include <string>
#include <string_view>

namespace cairn::base {

/// The text with control characters as \xNN, cut after 1000 bytes. Unlike base::printable it leaves quotes, so that a
/// place that is already part of a message ("x.json: tensor 'a'") keeps its form.
std::string one_line(std::string_view text);

/// Throws Error(kFormat): "<where>: <what>".
[[noreturn]] void fail_format(std::string_view where, const std::string& what);

}  // namespace cairn::base
