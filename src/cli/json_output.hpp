// JSON output: the envelope of every document. README.md has the keys of each command.
#pragma once

#include <functional>
#include <string_view>

#include "base/json.hpp"
#include "cli/output.hpp"

namespace cairn::cli {

inline constexpr int kJsonVersion = 1;

/// {"cairn_json": 1, "command": <command>}: keys keep the order in which they are added.
base::Json json_document(std::string_view command);

/// Prints the document, indented by two. Bytes that are not UTF-8 are replaced, so that the text always parses.
void print_json(Output& output, const base::Json& document);

/// A list whose values are made while they are printed, since a checkpoint may have 100,000 tensors.
struct JsonList {
  using Visit = std::function<void(const base::Json& value)>;
  std::string_view key;
  std::function<void(const Visit& visit)> walk;
};

/// Prints a document with the keys of `before`, the list, and the keys of `after`; both must be non-empty objects.
void print_json(Output& output, const base::Json& before, const JsonList& list, const base::Json& after);

/// A number, or a string for the values that JSON cannot represent: "infinity", "-infinity", "nan".
base::Json json_number(double value);

}  // namespace cairn::cli
