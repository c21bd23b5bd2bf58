// Compares two checkpoints and prints the differences.
#include "cli/diff.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>

#include "base/text.hpp"
#include "cli/arguments.hpp"
#include "cli/json_output.hpp"
#include "cli/progress.hpp"
#include "cli/table.hpp"
#include "comm/agree.hpp"

namespace cairn::cli {
namespace {

using conversion::TensorDiff;
using conversion::TensorVerdict;

const char* name_of(TensorVerdict verdict) {
  switch (verdict) {
    case TensorVerdict::kClose: return "close";
    case TensorVerdict::kDiffers: return "differs";
    case TensorVerdict::kOnlyInA: return "only in A";
    case TensorVerdict::kOnlyInB: return "only in B";
    case TensorVerdict::kOtherShape: return "other shape";
    case TensorVerdict::kOtherDtype: return "other dtype";
  }
  return "unknown";
}

conversion::DiffResult diff_with_progress(Context& context, const DiffCommand& command, const ResolvedPath& a,
                                          const ResolvedPath& b) {
  const ProgressLine progress(context.output);
  conversion::DiffOptions options = command.options;
  options.read.allowed = opening::allowed_by(command);
  return conversion::diff(context.communicator, a.parts(), b.parts(), options);
}

std::string difference_cell(const std::optional<conversion::Difference>& difference) {
  if (!difference) return "-";
  if (const auto* whole = std::get_if<std::uint64_t>(&*difference)) return group_digits(*whole);
  return fmt::format("{:.6g}", std::get<double>(*difference));
}

base::Json difference_json(const std::optional<conversion::Difference>& difference) {
  if (!difference) return nullptr;
  if (const auto* whole = std::get_if<std::uint64_t>(&*difference)) return *whole;
  return json_number(std::get<double>(*difference));
}

/// The tensors that are not equal bit for bit. With a tolerance, a column counts the elements outside it.
Table difference_table(const conversion::DiffResult& result, bool has_tolerance) {
  Columns columns = {"section", "tensor", "verdict", ">differing"};
  if (has_tolerance) columns.push_back(">outside");
  columns.insert(columns.end(), {">of", ">max abs difference", "detail"});
  Table table(std::move(columns));
  for (const TensorDiff& tensor : result.differences) {
    const auto count = [&](std::uint64_t elements) { return tensor.rule ? group_digits(elements) : "-"; };
    std::vector<std::string> cells = {base::printable(tensor.section), base::printable(tensor.name),
                                      name_of(tensor.verdict), count(tensor.elements_differing)};
    if (has_tolerance) cells.push_back(count(tensor.elements_outside));
    cells.push_back(count(tensor.elements));
    cells.push_back(difference_cell(tensor.max_abs_difference));
    cells.push_back(base::printable(tensor.detail));
    table.add(std::move(cells));
  }
  return table;
}

/// A whole number with all its digits, where a double would not have them.
std::optional<std::uint64_t> whole_number(long double number) {
  const bool is_whole = std::floor(number) == number && number >= 0x1p53L && number < 0x1p64L;
  return is_whole ? std::optional(static_cast<std::uint64_t>(number)) : std::nullopt;
}

std::string number_text(long double number) {
  const auto whole = whole_number(number);
  const auto rounded = static_cast<double>(number);
  return whole && static_cast<long double>(rounded) != number ? fmt::format("{}", *whole) : fmt::format("{}", rounded);
}

/// "tolerance: floats |A - B| <= 1e-09 + 0.05 * |B|, integers |A - B| <= 1e-09, ...".
std::string tolerance_line(const conversion::Tolerance& tolerance) {
  const std::string absolute = number_text(tolerance.absolute);
  return fmt::format(
      "tolerance: floats |A - B| <= {} + {} * |B|, integers |A - B| <= {}, all other dtypes equal bit for bit",
      absolute, tolerance.relative, absolute);
}

void print_text(Output& output, const conversion::DiffResult& result, const DiffCommand& command) {
  if (output.is_quiet() && result.close()) return;
  const conversion::Tolerance& tolerance = command.options.tolerance;
  const Table table = difference_table(result, !tolerance.is_none());
  if (table.rows() != 0) output.line(table.text(command.all || !output.is_terminal() ? kNoLimit : kTerminalRows));
  if (!tolerance.is_none()) output.line(tolerance_line(tolerance));
  if (result.equal()) {
    output.line(fmt::format("equal: {}, {} compared", counted(result.tensors, "tensor"),
                            counted(result.bytes_compared, "byte")));
  } else if (result.close()) {
    output.line(fmt::format("close: {}, {} of them not equal bit for bit, {} compared",
                            counted(result.tensors, "tensor"), group_digits(table.rows()),
                            counted(result.bytes_compared, "byte")));
  } else {
    const auto different = std::ranges::count_if(
        result.differences, [](const TensorDiff& tensor) { return tensor.verdict != TensorVerdict::kClose; });
    output.line(fmt::format("different: {} of {}, {} compared", group_digits(static_cast<std::uint64_t>(different)),
                            counted(result.tensors, "tensor"), counted(result.bytes_compared, "byte")));
  }
}

void print_document(Context& context, const DiffCommand& command, const ResolvedPath& a, const ResolvedPath& b,
                    const conversion::DiffResult& result) {
  base::Json document = json_document("diff");
  document["a"] = a.path.string();
  document["b"] = b.path.string();
  document["parts_a"] = a.more;
  document["parts_b"] = b.more;
  document["rtol"] = command.options.tolerance.relative;
  const long double absolute = command.options.tolerance.absolute;
  const auto whole = whole_number(absolute);
  document["atol"] = whole ? base::Json(*whole) : base::Json(static_cast<double>(absolute));
  document["equal"] = result.equal();
  document["close"] = result.close();
  document["tensors"] = result.tensors;
  document["size_bytes_compared"] = result.bytes_compared;
  base::Json rows = base::Json::array();
  for (const TensorDiff& tensor : result.differences) {
    base::Json row = {{"section", tensor.section}, {"name", tensor.name}, {"verdict", name_of(tensor.verdict)}};
    row["elements"] = tensor.elements;
    row["compared_as"] = tensor.rule ? base::Json(name_of(*tensor.rule)) : nullptr;
    row["elements_differing"] = tensor.rule ? base::Json(tensor.elements_differing) : nullptr;
    row["elements_outside"] = tensor.rule ? base::Json(tensor.elements_outside) : nullptr;
    row["max_abs_difference"] = difference_json(tensor.max_abs_difference);
    row["detail"] = tensor.detail;
    rows.push_back(std::move(row));
  }
  document["differences"] = std::move(rows);
  std::vector<std::string> notes = a.notes;
  notes.insert(notes.end(), b.notes.begin(), b.notes.end());
  document["notes"] = messages_json(notes);
  print_json(context.output, document);
}

}  // namespace

int run_diff(Context& context, const DiffCommand& command) {
  const ResolvedPath a = resolve(context.communicator, command.a, command.parts_a);
  const ResolvedPath b = resolve(context.communicator, command.b, command.parts_b);
  comm::agree_on_root(context.communicator, "look for an index", 0, [&] {
    if (command.trust_index) refuse_idle_trust({&a, &b});
  });
  const conversion::DiffResult result = diff_with_progress(context, command, a, b);
  if (command.json) {
    print_document(context, command, a, b, result);
  } else {
    for (const std::string& note : a.notes) context.output.note("A: " + note);
    for (const std::string& note : b.notes) context.output.note("B: " + note);
    print_text(context.output, result, command);
  }
  return result.close() ? kExitGood : kExitFailed;
}

}  // namespace cairn::cli
