// Prints JSON documents.
#include "cli/json_output.hpp"

#include <cmath>

namespace cairn::cli {

base::Json json_document(std::string_view command) {
  return {{"cairn_json", kJsonVersion}, {"command", std::string(command)}};
}

void print_json(Output& output, const base::Json& document) {
  output.line(document.dump({.indent = 2, .is_lenient = true}));
}

base::Json json_number(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "infinity" : "-infinity";
  return value;
}

}  // namespace cairn::cli
