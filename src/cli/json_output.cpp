#include "cli/json_output.hpp"

#include <cmath>
#include <string>
#include <utility>

#include "base/internal_error.hpp"
#include "base/text.hpp"

namespace cairn::cli {

base::Json json_document(std::string_view command) {
  return {{"cairn_json", kJsonVersion}, {"command", std::string(command)}};
}

namespace {

constexpr base::JsonFormat kJsonFormat = {.indent = 2, .is_lenient = true};

std::string text_of(const base::Json& value) { return base::visible_json(value.dump(kJsonFormat)); }

}  // namespace

void print_json(Output& output, const base::Json& document) { output.line(text_of(document)); }

void print_json(Output& output, const base::Json& before, const JsonList& list, const base::Json& after) {
  if (before.empty() || after.empty()) throw base::internal_error("a list without keys on both sides");
  std::string text = text_of(before);
  text.resize(text.size() - std::string_view("\n}").size());
  output.text(text + ",\n  " + base::json_quoted(list.key, kJsonFormat) + ": [");
  bool is_first = true;
  list.walk([&](const base::Json& value) {
    text = std::exchange(is_first, false) ? "\n    " : ",\n    ";
    for (const char c : text_of(value)) {  // newlines in strings are escaped
      text += c;
      if (c == '\n') text += "    ";
    }
    output.text(text);
  });
  output.text(is_first ? "]," : "\n  ],");
  output.line(text_of(after).substr(std::string_view("{").size()));
}

base::Json json_number(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "infinity" : "-infinity";
  return value;
}

}  // namespace cairn::cli
