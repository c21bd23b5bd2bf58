// Man pages and shell completions, made from the options of the command line (CommandText): there is no other list of
// them. The program cairn_pages writes them when Cairn is built.
#pragma once

#include <string>
#include <vector>

#include "command_line.hpp"

namespace cairn::app {

/// A file below the folder "share" of an installation.
struct Page {
  std::string path;  ///< "man/man1/cairn-verify.1"
  std::string text;
};

/// One page for the program and for each of its commands, and theirs.
std::vector<Page> man_pages(const CommandText& program, const std::string& version);

/// Functions that complete the words of the command in bash, zsh and fish: commands, options, the words that a value
/// can be, directories, and files.
std::vector<Page> completions(const CommandText& program);

}  // namespace cairn::app
