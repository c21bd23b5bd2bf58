// Messages of the library name its options, as in "(Options::files.group)". The command says --group instead.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace cairn::cli {

/// The options of the command that runs, like "--group". Not thread-safe: called once, before the command runs.
void set_command_options(std::vector<std::string> names);

/// The message with the command's options in place of the library's. Advice to set an option that the command does not
/// have is left out. Thread-safe.
std::string in_words_of_command(std::string_view message);

}  // namespace cairn::cli
