// Prints JSON documents.
#include "cli/json_output.hpp"

#include <cmath>

namespace cairn::cli {

nlohmann::ordered_json json_document(std::string_view command) {
  return {{"cairn_json", kJsonVersion}, {"command", std::string(command)}};
}

void print_json(Output& output, const nlohmann::ordered_json& document) {
  output.line(document.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
}

nlohmann::ordered_json json_number(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "infinity" : "-infinity";
  return value;
}

}  // namespace cairn::cli
