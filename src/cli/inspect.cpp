// `cairn inspect`: gathers the content of a checkpoint, and prints it as tables or JSON.
#include "cli/inspect.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <iterator>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "base/digits.hpp"
#include "base/text.hpp"
#include "checkpoint/environment.hpp"
#include "cli/arguments.hpp"
#include "cli/json_output.hpp"
#include "cli/table.hpp"
#include "comm/agree.hpp"
#include "conversion/convert.hpp"
#include "format/manifest.hpp"
#include "format/safetensors.hpp"
#include "interop/aliases.hpp"
#include "opening/open.hpp"
#include "plan/catalog.hpp"
#include "shard/box_math.hpp"

namespace cairn::cli {
namespace {

/// Pairs of moments that one codec stores as codes and scales.
struct InspectCoding {
  std::string codec;
  std::uint64_t pairs = 0;
  std::uint64_t size_bytes = 0;          ///< bytes of codes and scales
  std::uint64_t decoded_size_bytes = 0;  ///< bytes of the moments in F32
};

/// Sums over the tensors of one section, or over all tensors.
struct InspectTotals {
  std::string section;
  std::uint64_t tensors = 0;
  std::uint64_t elements = 0;
  std::uint64_t size_bytes = 0;             ///< bytes of tensor data
  std::uint64_t files = 0;                  ///< data files with a part of the section
  std::vector<InspectCoding> codings = {};  ///< moments stored as codes, by codec
};

struct InspectFile {
  std::string name;
  std::filesystem::path directory;
  std::uint64_t size_bytes = 0;
  std::uint64_t tensors = 0;
  std::map<std::string, std::string> metadata;  ///< `__metadata__` of the file
};

struct Inspection {
  std::filesystem::path path;      ///< the file or directory that was opened
  std::vector<std::string> parts;  ///< other directories with files of the checkpoint
  opening::OpenCheckpoint checkpoint;
  std::vector<InspectTotals> sections;  ///< in catalog order
  InspectTotals total;
  std::map<std::pair<std::string, std::string>, const interop::QuantisedMoments*>
      coded;                                   ///< by section and stored name of codes or scales
  std::vector<format::Rebuilt> rebuilt;        ///< rules for weights that a load makes from other weights
  std::vector<InspectFile> files;              ///< in the order of stored.files
  std::map<std::string, std::string> aliases;  ///< interop/aliases.hpp: removed name -> stored name
  std::vector<std::string> left_behind;        ///< carried files that a conversion neither copies nor reads
  std::vector<std::string> environment;        ///< of the save, if it recorded it
  std::vector<std::string> notes;              ///< notes on the choice of the checkpoint, and warnings from opening it
};

/// Rank-local: bytes of a stored tensor.
std::uint64_t size_of(const format::PlacedTensor& tensor) {
  return format::tensor_bytes(tensor.dtype, tensor.shape, tensor.name);
}

std::vector<InspectFile> files_of(const opening::OpenCheckpoint& opened) {
  std::vector<InspectFile> out;
  for (std::size_t i = 0; i < opened.stored.files.size(); ++i) {
    const format::StoredFile& stored = opened.stored.files[i];
    out.push_back({stored.name, opened.path_of(stored.name).parent_path(), stored.size_bytes, 0, {}});
    if (i < opened.metadata_of_files.size()) out.back().metadata = opened.metadata_of_files[i];
  }
  return out;
}

void sum_up(Inspection& inspection) {
  std::vector<bool> is_file_of_section;
  const auto add_file = [&](std::uint32_t file) {
    ++inspection.files.at(file).tensors;
    if (is_file_of_section[file]) return;
    is_file_of_section[file] = true;
    ++inspection.sections.back().files;
  };
  for (auto cursor = inspection.checkpoint.stored.tensors.cursor(); cursor.next();) {
    const format::PlacedTensor tensor = cursor.placed();
    if (inspection.sections.empty() || inspection.sections.back().section != tensor.section) {
      inspection.sections.push_back({std::string(tensor.section), 0, 0, 0, 0, {}});
      is_file_of_section.assign(inspection.files.size(), false);
    }
    if (!tensor.in_parts) add_file(tensor.file);
    std::set<std::uint32_t> files_of_tensor;
    for (const format::StoredBox& box : tensor.boxes) files_of_tensor.insert(box.file);
    std::ranges::for_each(files_of_tensor, add_file);
    InspectTotals& section = inspection.sections.back();
    section.tensors += 1;
    section.elements += shard::elements_of(tensor.shape);
    section.size_bytes += size_of(tensor);
  }
  for (const InspectTotals& section : inspection.sections) {
    inspection.total.tensors += section.tensors;
    inspection.total.elements += section.elements;
    inspection.total.size_bytes += section.size_bytes;
  }
  inspection.total.files = inspection.files.size();
}

/// Finds the codes and scales, and sums their bytes and the bytes of the decoded moments.
void find_codes(Inspection& inspection) {
  for (const interop::QuantisedMoments& moments : inspection.checkpoint.quantised) {
    for (const std::string& part : moments.parts) inspection.coded[{moments.section, part}] = &moments;
  }
  if (inspection.coded.empty()) return;
  std::map<const interop::QuantisedMoments*, std::uint64_t> bytes_of_pair;
  for (auto cursor = inspection.checkpoint.stored.tensors.cursor(); cursor.next();) {
    const auto at = inspection.coded.find({std::string(cursor.section()), std::string(cursor.name())});
    if (at != inspection.coded.end()) bytes_of_pair[at->second] += size_of(cursor.placed());
  }
  std::map<std::string, std::map<std::string, InspectCoding>> by_section;
  for (const interop::QuantisedMoments& moments : inspection.checkpoint.quantised) {
    InspectCoding& coding = by_section[moments.section][moments.codec];
    coding.codec = moments.codec;
    coding.pairs += 1;
    coding.size_bytes += bytes_of_pair.at(&moments);
    coding.decoded_size_bytes += 2 * format::tensor_bytes(DType::kF32, moments.shape, moments.first);
  }
  for (InspectTotals& section : inspection.sections) {
    for (auto& [codec, coding] : by_section[section.section]) section.codings.push_back(std::move(coding));
  }
}

/// The moments that a tensor holds codes or scales of, or nullptr.
const interop::QuantisedMoments* moments_of(const Inspection& inspection, const format::PlacedTensor& tensor) {
  if (inspection.coded.empty()) return nullptr;
  const auto at = inspection.coded.find({std::string(tensor.section), std::string(tensor.name)});
  return at == inspection.coded.end() ? nullptr : at->second;
}

/// Carried files that a conversion neither copies nor reads.
std::vector<std::string> left_behind(const opening::OpenCheckpoint& opened) {
  std::vector<std::string> notes;
  std::vector<std::string> kept = conversion::files_to_carry(opened, notes);
  kept.insert(kept.end(), opened.about.sources.begin(), opened.about.sources.end());
  std::vector<std::string> left;
  std::ranges::copy_if(opened.carried, std::back_inserter(left),
                       [&](const std::string& name) { return std::ranges::find(kept, name) == kept.end(); });
  return left;
}

// `cairn inspect` for people: a heading, then tables of sections, files, tensors and metadata.

/// "8.6 MiB for 32.0 MiB, 3.7x".
std::string saving_text(const InspectCoding& coding) {
  return fmt::format("{} for {}, {:.1f}x", base::format_size(coding.size_bytes),
                     base::format_size(coding.decoded_size_bytes),
                     static_cast<double>(coding.decoded_size_bytes) / static_cast<double>(coding.size_bytes));
}

std::string size_cell(std::uint64_t bytes) {
  return fmt::format("{} ({})", group_digits(bytes), base::format_size(bytes));
}

/// " (7 by its name, as ls says)" for step 9 in a directory checkpoint-7; otherwise "".
std::string step_by_name(const std::filesystem::path& directory, std::uint64_t step) {
  constexpr std::string_view kBeforeStep = "checkpoint-";
  const std::filesystem::path named = directory.has_filename() ? directory : directory.parent_path();
  const std::string name = named.filename().string();
  if (!name.starts_with(kBeforeStep)) return {};
  const auto called = base::number_in<std::uint64_t>(std::string_view(name).substr(kBeforeStep.size()));
  return !called || *called == step ? "" : fmt::format(" ({} by its name, as ls says)", *called);
}

/// ", written by transformers 4.57.1, step 3, layout tp=2, quantised: O1", as far as these are known.
std::string provenance(const interop::About& about, const std::filesystem::path& directory) {
  std::string out;
  if (!about.version.empty()) out += fmt::format(", written by {}", base::printable(about.version));
  if (about.step) out += fmt::format(", step {}{}", *about.step, step_by_name(directory, *about.step));
  if (!about.parallel.empty()) out += fmt::format(", layout {}", base::printable(about.parallel));
  if (!about.quantisation.empty()) out += fmt::format(", quantised: {}", base::printable(about.quantisation));
  return out;
}

void print_heading(Output& output, const Inspection& inspection) {
  const opening::OpenCheckpoint& opened = inspection.checkpoint;
  output.line(base::printable(inspection.path.string()));
  for (const std::string& part : inspection.parts) output.line(fmt::format("and {}", base::printable(part)));
  std::string kind = opened.about.dialect;
  if (opened.manifest) {
    const format::Manifest& manifest = *opened.manifest;
    kind += fmt::format(", written by {}", base::printable(manifest.tool));
    if (manifest.has_step) kind += fmt::format(", step {}", manifest.step);
    if (!manifest.layout.empty()) kind += fmt::format(", layout {}", base::printable(manifest.layout));
    if (manifest.ranks != 0) kind += " on " + counted(manifest.ranks, "rank");
    if (!manifest.run_id.empty()) kind += fmt::format(", run {}", base::printable(manifest.run_id));
    if (!opened.blocks) kind += ", no checksums: nothing to verify against";
  } else {
    kind += fmt::format("{}, no cairn.json: nothing to verify against", provenance(opened.about, inspection.path));
  }
  output.line(kind);
  for (const std::string& line : inspection.environment) output.line("environment: " + one_line(line));
  if (opened.manifest && opened.manifest->part)
    output.line("only a part of a state: " + format::words_of(*opened.manifest->part));
  for (const std::string& note : inspection.notes) output.line("note: " + one_line(note));
  for (const auto& [key, value] : opened.about.values) {
    output.line(fmt::format("taken over as metadata: {}", base::printable(key)));
  }
  for (const auto& [removed, kept] : inspection.aliases) {
    output.line(fmt::format("alias: {} is the same tensor as {}", base::printable(removed), base::printable(kept)));
  }
  for (const std::string& what : opened.about.left) output.line("not taken over: " + one_line(what));
  if (!inspection.left_behind.empty()) {
    std::vector<std::string> names;
    for (const std::string& name : inspection.left_behind) names.push_back(base::printable(name));
    output.line("left behind by a conversion: " + base::joined(names));
  }
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

/// "q8: w.exp_avg, w.exp_avg_sq", or "" for a tensor that is neither codes nor scales.
std::string codes_cell(const Inspection& inspection, const format::PlacedTensor& tensor) {
  const interop::QuantisedMoments* const moments = moments_of(inspection, tensor);
  if (moments == nullptr) return "";
  return fmt::format("{}: {}, {}", base::printable(moments->codec), base::printable(moments->first),
                     base::printable(moments->second));
}

Table section_table(const Inspection& inspection) {
  Table table({"section", ">tensors", ">elements", ">bytes", ">files"});
  for (const InspectTotals& section : inspection.sections) {
    table.add({base::printable(section.section), group_digits(section.tensors), group_digits(section.elements),
               size_cell(section.size_bytes), std::to_string(section.files)});
  }
  return table;
}

Table file_table(const Inspection& inspection) {
  Table table({"file", ">tensors", ">bytes"});
  for (const InspectFile& file : inspection.files) {
    table.add({base::printable(file.name), group_digits(file.tensors), size_cell(file.size_bytes)});
  }
  return table;
}

/// Prints row by row: a checkpoint may have 100,000 tensors.
void print_tensors(Output& output, const Inspection& inspection, std::size_t limit) {
  if (inspection.total.tensors == 0) return;
  Columns columns = {"section", "tensor", "dtype", "shape", ">bytes", "file"};
  const bool has_codes = !inspection.coded.empty();
  if (has_codes) columns.push_back("codes of");
  std::vector<std::string> files;
  for (const InspectFile& file : inspection.files) files.push_back(base::printable(file.name));
  const auto walk = [&](const std::function<bool(Cells)>& visit) {
    std::string section;
    std::string name;
    std::string shape;
    std::string bytes;
    std::string where;
    std::string codes;
    for (auto cursor = inspection.checkpoint.stored.tensors.cursor(); cursor.next();) {
      const format::PlacedTensor tensor = cursor.placed();
      if (!cursor.same_type()) {
        shape = shard::shape_text(tensor.shape);
        bytes = group_digits(size_of(tensor));
      }
      std::string_view file = "-";
      if (!tensor.in_parts) file = files.at(tensor.file);
      if (!tensor.boxes.empty()) file = files.at(tensor.boxes.front().file);
      if (tensor.boxes.size() > 1) {
        where = std::string(file) + " and " + counted(tensor.boxes.size() - 1, "more box", "more boxes");
        file = where;
      }
      if (has_codes) codes = codes_cell(inspection, tensor);
      const std::array<std::string_view, 7> cells = {base::printable(tensor.section, section),
                                                     base::printable(tensor.name, name),
                                                     name_of(tensor.dtype),
                                                     shape,
                                                     bytes,
                                                     file,
                                                     codes};
      if (!visit(Cells(cells).first(columns.size()))) return;
    }
  };
  output.line("");
  write_table(columns, {inspection.total.tensors, walk}, limit, output_width(),
              [&](std::string_view piece) { output.text(piece); });
  output.line("");
}

Table metadata_table(const Inspection& inspection) {
  Table table({"where", "key", "value"});
  if (inspection.checkpoint.manifest) {
    for (const auto& [key, value] : inspection.checkpoint.manifest->user_metadata) {
      table.add({"checkpoint", base::printable(key), base::printable(value)});
    }
    for (const auto& [key, value] : inspection.checkpoint.manifest->metrics) {
      table.add({"metric", base::printable(key), fmt::format("{}", value)});
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

// `cairn inspect --json`: everything, in the schema of README.md.

using base::Json;

Json totals_json(const InspectTotals& totals) {
  return {{"tensors", totals.tensors},
          {"elements", totals.elements},
          {"size_bytes", totals.size_bytes},
          {"files", totals.files}};
}

Json codings_json(const std::vector<InspectCoding>& codings) {
  return Json::array_of(codings, [](const InspectCoding& coding) -> Json {
    return {{"codec", coding.codec},
            {"pairs", coding.pairs},
            {"size_bytes", coding.size_bytes},
            {"decoded_size_bytes", coding.decoded_size_bytes}};
  });
}

Json rebuilt_json(const std::vector<format::Rebuilt>& rules) {
  return Json::array_of(rules, [](const format::Rebuilt& rule) -> Json {
    return {{"section", rule.section}, {"from", rule.from}, {"dtype", std::string(name_of(rule.dtype))}};
  });
}

/// The moments of stored codes or scales; null for other tensors.
void put_coding(JsonText& text, const Inspection& inspection, const format::PlacedTensor& tensor) {
  const interop::QuantisedMoments* const moments = moments_of(inspection, tensor);
  if (moments == nullptr) return text.null();
  text.begin('{');
  text.member("codec", moments->codec);
  text.member("first", moments->first);
  text.member("second", moments->second);
  text.member("shape", moments->shape);
  text.end('}');
}

Json manifest_json(const std::optional<format::Manifest>& manifest) {
  if (!manifest) return nullptr;
  Json out = {{"version", format::kManifestVersion}, {"tool", manifest->tool}};
  out["step"] = manifest->has_step ? Json(manifest->step) : Json(nullptr);
  out["run_id"] = manifest->run_id;
  out["parent"] = manifest->parent;
  out["layout"] = manifest->layout;
  out["ranks"] = manifest->ranks;
  out["block_size_bytes"] = manifest->block_bytes;
  out["metadata"] = manifest->user_metadata;
  out["metrics"] = manifest->metrics;
  out["quantisation"] = manifest->quantisation;
  out["part"] = manifest->part ? Json(format::words_of(*manifest->part)) : Json(nullptr);
  return out;
}

Json about_json(const interop::About& about) {
  Json out = {{"version", about.version}, {"layout", about.parallel}, {"quantisation", about.quantisation}};
  out["step"] = about.step ? Json(*about.step) : Json(nullptr);
  out["values"] = about.values;
  out["left"] = about.left;
  return out;
}

Json files_json(const Inspection& inspection) {
  return Json::array_of(inspection.files, [](const InspectFile& file) -> Json {
    return {{"name", file.name},
            {"directory", file.directory.string()},
            {"size_bytes", file.size_bytes},
            {"tensors", file.tensors},
            {"metadata", file.metadata}};
  });
}

void put_box(JsonText& text, const std::string& file, std::uint64_t offset_bytes, std::span<const std::uint64_t> offset,
             std::span<const std::uint64_t> shape) {
  text.begin('{');
  text.member("file", file);
  text.member("offset_bytes", offset_bytes);
  text.member("offset", offset);
  text.member("shape", shape);
  text.end('}');
}

void put_tensor(JsonText& text, const Inspection& inspection, const plan::PackedCatalog::Cursor& at) {
  const format::PlacedTensor tensor = at.placed();
  const auto name_of_file = [&](std::uint32_t file) -> const std::string& {
    return inspection.checkpoint.stored.files.at(file).name;
  };
  text.begin('{');
  text.member("section", tensor.section);
  text.member("name", tensor.name);
  text.member("dtype", name_of(tensor.dtype));
  text.member("shape", tensor.shape);
  text.member("elements", shard::elements_of(tensor.shape));
  text.member("size_bytes", at.size_bytes());
  text.key("boxes");
  text.begin('[');
  if (tensor.in_parts) {
    for (const format::StoredBox& box : tensor.boxes) {
      put_box(text, name_of_file(box.file), box.offset_bytes, box.box.offset, box.box.shape);
    }
  } else {
    const std::vector<std::uint64_t> origin(tensor.shape.size(), 0);
    put_box(text, name_of_file(tensor.file), tensor.offset_bytes, origin, tensor.shape);
  }
  text.end(']');
  text.key("coding");
  put_coding(text, inspection, tensor);
  text.end('}');
}

Inspection inspect_here(const InspectOptions& options) {
  Inspection out;
  ResolvedPath resolved = resolve_here(options.path, options.parts);
  if (options.trust_index) refuse_idle_trust({&resolved});
  out.checkpoint = opening::open_here(resolved.parts(), opening::allowed_by(options));
  out.path = resolved.path;
  out.parts = std::move(resolved.more);
  out.notes = std::move(resolved.notes);
  out.notes.insert(out.notes.end(), out.checkpoint.warnings.begin(), out.checkpoint.warnings.end());
  out.files = files_of(out.checkpoint);
  sum_up(out);
  find_codes(out);
  out.aliases = interop::aliases_of(out.checkpoint.metadata, out.checkpoint.stored.tensors).kept_of;
  out.left_behind = left_behind(out.checkpoint);
  out.environment = checkpoint::environment_of_save(out.checkpoint);
  if (out.checkpoint.manifest) {
    const std::filesystem::path manifest = out.checkpoint.directory / format::kManifestFile;
    out.rebuilt = format::parse_rebuilt(out.checkpoint.manifest->extra, manifest.string());
  }
  return out;
}

void print_inspection(Output& output, const Inspection& inspection, const InspectOptions& options) {
  const bool everything = !options.sections && !options.files && !options.tensors && !options.metadata;
  const std::size_t limit = options.all || !output.is_terminal() ? kNoLimit : kTerminalRows;
  const auto print = [&](const Table& table) {
    if (table.rows() == 0) return;
    output.line("");
    output.line(table.text(limit));
  };
  print_heading(output, inspection);
  if (everything || options.sections) print(section_table(inspection));
  if (everything || options.files) print(file_table(inspection));
  if (everything || options.tensors) print_tensors(output, inspection, limit);
  if (everything || options.metadata) print(metadata_table(inspection));
}

void print_inspection_json(Output& output, const Inspection& inspection) {
  Json document = json_document("inspect");
  const opening::OpenCheckpoint& opened = inspection.checkpoint;
  document["path"] = inspection.path.string();
  document["parts"] = inspection.parts;
  document["dialect"] = opened.about.dialect;
  document["about"] = about_json(opened.about);
  document["has_checksums"] = opened.blocks.has_value();
  document["manifest"] = manifest_json(opened.manifest);
  document["totals"] = totals_json(inspection.total);
  document["sections"] = Json::array_of(inspection.sections, [](const InspectTotals& section) {
    Json row = {{"name", section.section}};
    row.update(totals_json(section));
    row["codings"] = codings_json(section.codings);
    return row;
  });
  document["rebuilt"] = rebuilt_json(inspection.rebuilt);
  document["aliases"] = inspection.aliases;
  document["files"] = files_json(inspection);
  const auto put_tensors = [&](JsonText& text) {
    for (auto at = opened.stored.tensors.cursor(); at.next();) put_tensor(text, inspection, at);
  };
  print_json(output, document, {"tensors", put_tensors},
             {{"carried", opened.carried},
              {"left_behind", inspection.left_behind},
              {"environment", inspection.environment},
              {"notes", messages_json(inspection.notes)}});
}

}  // namespace

int run_inspect(Context& context, const InspectOptions& options) {
  comm::agree_on_root(context.communicator, "inspect", 0, [&] {
    const Inspection inspection = inspect_here(options);
    if (options.json) {
      print_inspection_json(context.output, inspection);
    } else {
      print_inspection(context.output, inspection, options);
    }
  });
  return kExitGood;
}

}  // namespace cairn::cli
