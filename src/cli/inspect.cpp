// Gathers what `cairn inspect` shows.
#include "cli/inspect.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <set>

#include "base/units.hpp"
#include "cli/exit_code.hpp"
#include "cli/resolve.hpp"
#include "comm/agree.hpp"
#include "directory/root.hpp"
#include "format/safetensors.hpp"
#include "plan/catalog.hpp"
#include "shard/box_math.hpp"

namespace cairn::cli {
namespace {

std::vector<InspectFile> files_of(const checkpoint::OpenCheckpoint& opened) {
  std::vector<InspectFile> out;
  for (const format::StoredFile& stored : opened.stored.files) {
    InspectFile file{stored.name, stored.size_bytes, 0, {}};
    if (opened.dialect != interop::Dialect::kHdf5) {
      file.metadata = checkpoint::read_header(opened.directory / stored.name).metadata;
    }
    out.push_back(std::move(file));
  }
  return out;
}

// Catalog order, whatever the order of the files.
void sort_tensors(std::vector<format::StoredTensor>& tensors) {
  std::stable_sort(tensors.begin(), tensors.end(), [](const format::StoredTensor& a, const format::StoredTensor& b) {
    return plan::in_catalog_order(a.section, a.name, b.section, b.name);
  });
}

void sum_up(Inspection& inspection) {
  std::set<std::uint32_t> files_of_section;
  for (const format::StoredTensor& tensor : inspection.checkpoint.stored.tensors) {
    if (inspection.sections.empty() || inspection.sections.back().section != tensor.section) {
      inspection.sections.push_back({tensor.section, 0, 0, 0, 0, {}});
      files_of_section.clear();
    }
    std::set<std::uint32_t> files_of_tensor;
    for (const format::StoredBox& box : tensor.boxes) files_of_tensor.insert(box.file);
    for (const std::uint32_t file : files_of_tensor) ++inspection.files.at(file).tensors;
    files_of_section.insert(files_of_tensor.begin(), files_of_tensor.end());
    InspectTotals& section = inspection.sections.back();
    section.tensors += 1;
    section.elements += shard::elements_of(tensor.shape);
    section.size_bytes += size_of(tensor);
    section.files = files_of_section.size();
  }
  for (const InspectTotals& section : inspection.sections) {
    inspection.total.tensors += section.tensors;
    inspection.total.elements += section.elements;
    inspection.total.size_bytes += section.size_bytes;
  }
  inspection.total.files = inspection.files.size();
}

/// What is coded, and what that saves.
void find_codes(Inspection& inspection) {
  for (const interop::QuantisedMoments& moments : inspection.checkpoint.quantised) {
    for (const std::string& part : moments.parts) inspection.coded[{moments.section, part}] = &moments;
  }
  std::map<const interop::QuantisedMoments*, std::uint64_t> bytes_of_pair;
  for (const format::StoredTensor& tensor : inspection.checkpoint.stored.tensors) {
    const auto at = inspection.coded.find({tensor.section, tensor.name});
    if (at != inspection.coded.end()) bytes_of_pair[at->second] += size_of(tensor);
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

}  // namespace

std::string saving_text(const InspectCoding& coding) {
  return fmt::format("{} for {}, {:.1f}x", base::format_size(coding.size_bytes),
                     base::format_size(coding.decoded_size_bytes),
                     static_cast<double>(coding.decoded_size_bytes) / static_cast<double>(coding.size_bytes));
}

std::uint64_t size_of(const format::StoredTensor& tensor) {
  return format::tensor_bytes(tensor.dtype, tensor.shape, tensor.name);
}

Inspection inspect_here(const std::filesystem::path& path, checkpoint::Links links) {
  Inspection out;
  ResolvedPath resolved = resolve_here(path);
  out.checkpoint = checkpoint::open_here(resolved.path, links);
  out.path = resolved.path;
  out.notes = std::move(resolved.notes);
  out.notes.insert(out.notes.end(), out.checkpoint.warnings.begin(), out.checkpoint.warnings.end());
  sort_tensors(out.checkpoint.stored.tensors);
  out.files = files_of(out.checkpoint);
  sum_up(out);
  find_codes(out);
  if (out.checkpoint.manifest) {
    const std::filesystem::path manifest = out.checkpoint.directory / checkpoint::kManifestFile;
    out.rebuilt = format::parse_rebuilt(out.checkpoint.manifest->extra, manifest.string());
  }
  return out;
}

int run_inspect(Context& context, const InspectOptions& options) {
  comm::agree_on_root(context.communicator, "inspect", 0, [&] {
    const Inspection inspection = inspect_here(options.path, checkpoint::links_of(options.follow_links));
    if (options.json) {
      print_inspection_json(context.output, inspection);
    } else {
      print_inspection(context.output, inspection, options);
    }
  });
  return kExitGood;
}

}  // namespace cairn::cli
