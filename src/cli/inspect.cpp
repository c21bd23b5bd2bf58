// Gathers what `cairn inspect` shows.
#include "cli/inspect.hpp"

#include <algorithm>
#include <set>

#include "cli/exit_code.hpp"
#include "cli/resolve.hpp"
#include "comm/agree.hpp"
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
    if (const auto order = plan::section_order(a.section, b.section); order != 0) return order < 0;
    return plan::natural_order(a.name, b.name) < 0;
  });
}

void sum_up(Inspection& inspection) {
  std::set<std::uint32_t> files_of_section;
  for (const format::StoredTensor& tensor : inspection.checkpoint.stored.tensors) {
    if (inspection.sections.empty() || inspection.sections.back().section != tensor.section) {
      inspection.sections.push_back({tensor.section, 0, 0, 0, 0});
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

}  // namespace

std::uint64_t size_of(const format::StoredTensor& tensor) {
  return format::tensor_bytes(tensor.dtype, tensor.shape, tensor.name);
}

Inspection inspect_here(const std::filesystem::path& path) {
  Inspection out;
  ResolvedPath resolved = resolve_here(path);
  out.checkpoint = checkpoint::open_here(resolved.path);
  out.path = resolved.path;
  out.notes = std::move(resolved.notes);
  out.notes.insert(out.notes.end(), out.checkpoint.warnings.begin(), out.checkpoint.warnings.end());
  sort_tensors(out.checkpoint.stored.tensors);
  out.files = files_of(out.checkpoint);
  sum_up(out);
  return out;
}

int run_inspect(Context& context, const InspectOptions& options) {
  comm::agree_on_root(context.communicator, "inspect", 0, [&] {
    const Inspection inspection = inspect_here(options.path);
    if (options.json) {
      print_inspection_json(context.output, inspection);
    } else {
      print_inspection(context.output, inspection, options);
    }
  });
  return kExitGood;
}

}  // namespace cairn::cli
