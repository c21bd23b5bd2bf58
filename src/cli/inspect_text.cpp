// `cairn inspect` for people: a heading, then tables of sections, files and tensors.
#include <fmt/core.h>

#include "base/text.hpp"
#include "cli/inspect.hpp"
#include "cli/table.hpp"
#include "shard/box_math.hpp"

namespace cairn::cli {
namespace {

std::string size_cell(std::uint64_t bytes) {
  return fmt::format("{} ({})", group_digits(bytes), base::format_size(bytes));
}

void print_heading(Output& output, const Inspection& inspection) {
  const checkpoint::OpenCheckpoint& opened = inspection.checkpoint;
  output.line(base::printable(inspection.path.string()));
  std::string kind = interop::name_of(opened.dialect);
  if (opened.manifest) {
    const format::Manifest& manifest = *opened.manifest;
    kind += fmt::format(", written by {}", base::printable(manifest.tool));
    if (manifest.has_step) kind += fmt::format(", step {}", manifest.step);
    if (!manifest.layout.empty()) kind += fmt::format(", layout {}", base::printable(manifest.layout));
    if (manifest.ranks != 0) kind += " on " + counted(manifest.ranks, "rank");
    if (!manifest.run_id.empty()) kind += fmt::format(", run {}", base::printable(manifest.run_id));
    if (!opened.blocks) kind += ", no checksums: nothing to verify against";
  } else {
    kind += ", no cairn.json: nothing to verify against";
  }
  output.line(kind);
  for (const std::string& note : inspection.notes) output.line("note: " + one_line(note));
  output.line(fmt::format("{}, {}, {} in {}", counted(inspection.total.tensors, "tensor"),
                          counted(inspection.total.elements, "element"), base::format_size(inspection.total.size_bytes),
                          counted(inspection.total.files, "file")));
  for (const InspectTotals& section : inspection.sections) {
    for (const InspectCoding& coding : section.codings) {
      output.line(fmt::format("{}: {} codes of {}, {}", base::printable(section.section),
                              counted(coding.pairs, "pair of moments is", "pairs of moments are"),
                              base::printable(coding.codec), saving_text(coding)));
    }
  }
  for (const format::Rebuilt& rule : inspection.rebuilt) {
    output.line(
        fmt::format("{}: what is left out is made from {} in {}", rule.section, rule.from, cairn::name_of(rule.dtype)));
  }
}

/// "q8: w.exp_avg, w.exp_avg_sq", or nothing for a tensor that is what it seems.
std::string codes_cell(const Inspection& inspection, const format::StoredTensor& tensor) {
  const auto at = inspection.coded.find({tensor.section, tensor.name});
  if (at == inspection.coded.end()) return "";
  const interop::QuantisedMoments& moments = *at->second;
  return fmt::format("{}: {}, {}", base::printable(moments.codec), base::printable(moments.first),
                     base::printable(moments.second));
}

Table section_table(const Inspection& inspection) {
  Table table({{"section"},
               {"tensors", Align::kRight},
               {"elements", Align::kRight},
               {"bytes", Align::kRight},
               {"files", Align::kRight}});
  for (const InspectTotals& section : inspection.sections) {
    table.add({base::printable(section.section), group_digits(section.tensors), group_digits(section.elements),
               size_cell(section.size_bytes), std::to_string(section.files)});
  }
  return table;
}

Table file_table(const Inspection& inspection) {
  Table table({{"file"}, {"tensors", Align::kRight}, {"bytes", Align::kRight}});
  for (const InspectFile& file : inspection.files) {
    table.add({base::printable(file.name), group_digits(file.tensors), size_cell(file.size_bytes)});
  }
  return table;
}

Table tensor_table(const Inspection& inspection) {
  std::vector<Column> columns = {{"section"}, {"tensor"}, {"dtype"}, {"shape"}, {"bytes", Align::kRight}, {"file"}};
  const bool has_codes = !inspection.coded.empty();
  if (has_codes) columns.push_back({"codes of"});
  Table table(std::move(columns));
  const format::StoredCheckpoint& stored = inspection.checkpoint.stored;
  for (const format::StoredTensor& tensor : stored.tensors) {
    std::string where = tensor.boxes.empty() ? "-" : base::printable(stored.files.at(tensor.boxes.front().file).name);
    if (tensor.boxes.size() > 1) where += " and " + counted(tensor.boxes.size() - 1, "more box", "more boxes");
    std::vector<std::string> cells = {base::printable(tensor.section),    base::printable(tensor.name),
                                      std::string(name_of(tensor.dtype)), shard::shape_text(tensor.shape),
                                      group_digits(size_of(tensor)),      where};
    if (has_codes) cells.push_back(codes_cell(inspection, tensor));
    table.add(std::move(cells));
  }
  return table;
}

Table metadata_table(const Inspection& inspection) {
  Table table({{"where"}, {"key"}, {"value"}});
  if (inspection.checkpoint.manifest) {
    for (const auto& [key, value] : inspection.checkpoint.manifest->user_metadata) {
      table.add({"checkpoint", base::printable(key), base::printable(value)});
    }
  }
  for (const InspectFile& file : inspection.files) {
    for (const auto& [key, value] : file.metadata) {
      table.add({base::printable(file.name), base::printable(key), base::printable(value)});
    }
  }
  for (const std::string& name : inspection.checkpoint.carried) table.add({"carried file", base::printable(name), ""});
  return table;
}

}  // namespace

void print_inspection(Output& output, const Inspection& inspection, const InspectOptions& options) {
  const bool everything = !options.sections && !options.files && !options.tensors && !options.metadata;
  const std::size_t limit = options.all || !output.is_terminal() ? kNoLimit : kTerminalRows;
  const auto print = [&](const Table& table) {
    if (table.rows() != 0) output.line("\n" + table.text(limit));
  };
  print_heading(output, inspection);
  if (everything || options.sections) print(section_table(inspection));
  if (everything || options.files) print(file_table(inspection));
  if (everything || options.tensors) print(tensor_table(inspection));
  if (everything || options.metadata) print(metadata_table(inspection));
}

}  // namespace cairn::cli
