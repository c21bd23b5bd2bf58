// JSON output: the envelope that every document shares. The keys of each command stand in README.md.
#pragma once

#include <string>
#include <string_view>

#include "base/json.hpp"
#include "cli/output.hpp"

namespace cairn::cli {

inline constexpr int kJsonVersion = 1;

/// {"cairn_json": 1, "command": <command>}: keys keep the order in which they are added.
base::Json json_document(std::string_view command);

/// Prints the document, indented by two. Bytes that are no UTF-8 are replaced, so that the text always parses.
void print_json(Output& output, const base::Json& document);

/// A number, or the string "infinity" or "nan", which JSON has no number for.
base::Json json_number(double value);

}  // namespace cairn::cli
