// The words of log lines: a program may say the same in its own.
#pragma once

#include <string>
#include <string_view>

namespace cairn::base {

/// From now on `words` is called with each line that is logged, and its result is logged. It must be thread-safe.
void set_log_words(std::string (*words)(std::string_view line));

}  // namespace cairn::base
