// `cairn inspect --json`: everything, in the schema of README.md.
#include "cli/inspect.hpp"
#include "cli/json_output.hpp"
#include "shard/box_math.hpp"

namespace cairn::cli {
namespace {

using Json = nlohmann::ordered_json;

Json totals_json(const InspectTotals& totals) {
  return {{"tensors", totals.tensors},
          {"elements", totals.elements},
          {"size_bytes", totals.size_bytes},
          {"files", totals.files}};
}

Json manifest_json(const std::optional<format::Manifest>& manifest) {
  if (!manifest) return nullptr;
  Json out = {{"version", manifest->version}, {"tool", manifest->tool}};
  out["step"] = manifest->has_step ? Json(manifest->step) : Json(nullptr);
  out["run_id"] = manifest->run_id;
  out["parent"] = manifest->parent;
  out["layout"] = manifest->layout;
  out["ranks"] = manifest->ranks;
  out["block_size_bytes"] = manifest->block_bytes;
  out["metadata"] = manifest->user_metadata;
  out["quantisation"] = Json::parse(manifest->quantisation.dump());
  return out;
}

Json files_json(const Inspection& inspection) {
  Json out = Json::array();
  for (const InspectFile& file : inspection.files) {
    out.push_back(
        {{"name", file.name}, {"size_bytes", file.size_bytes}, {"tensors", file.tensors}, {"metadata", file.metadata}});
  }
  return out;
}

Json tensors_json(const format::StoredCheckpoint& stored) {
  Json out = Json::array();
  for (const format::StoredTensor& tensor : stored.tensors) {
    Json boxes = Json::array();
    for (const format::StoredBox& box : tensor.boxes) {
      boxes.push_back({{"file", stored.files.at(box.file).name},
                       {"offset_bytes", box.offset_bytes},
                       {"offset", box.box.offset},
                       {"shape", box.box.shape}});
    }
    out.push_back({{"section", tensor.section},
                   {"name", tensor.name},
                   {"dtype", std::string(name_of(tensor.dtype))},
                   {"shape", tensor.shape},
                   {"elements", shard::elements_of(tensor.shape)},
                   {"size_bytes", size_of(tensor)},
                   {"boxes", std::move(boxes)}});
  }
  return out;
}

}  // namespace

void print_inspection_json(Output& output, const Inspection& inspection) {
  Json document = json_document("inspect");
  const checkpoint::OpenCheckpoint& opened = inspection.checkpoint;
  document["path"] = inspection.path.string();
  document["dialect"] = interop::name_of(opened.dialect);
  document["has_checksums"] = opened.blocks.has_value();
  document["manifest"] = manifest_json(opened.manifest);
  document["totals"] = totals_json(inspection.total);
  document["sections"] = Json::array();
  for (const InspectTotals& section : inspection.sections) {
    Json row = {{"name", section.section}};
    row.update(totals_json(section));
    document["sections"].push_back(std::move(row));
  }
  document["files"] = files_json(inspection);
  document["tensors"] = tensors_json(opened.stored);
  document["carried"] = opened.carried;
  document["notes"] = inspection.notes;
  print_json(output, document);
}

}  // namespace cairn::cli
