// `cairn inspect --json`: everything, in the schema of README.md.
#include "cli/inspect.hpp"
#include "cli/json_output.hpp"
#include "shard/box_math.hpp"

namespace cairn::cli {
namespace {

using base::Json;

Json totals_json(const InspectTotals& totals) {
  return {{"tensors", totals.tensors},
          {"elements", totals.elements},
          {"size_bytes", totals.size_bytes},
          {"files", totals.files}};
}

Json codings_json(const std::vector<InspectCoding>& codings) {
  Json out = Json::array();
  for (const InspectCoding& coding : codings) {
    out.push_back({{"codec", coding.codec},
                   {"pairs", coding.pairs},
                   {"size_bytes", coding.size_bytes},
                   {"decoded_size_bytes", coding.decoded_size_bytes}});
  }
  return out;
}

Json rebuilt_json(const std::vector<format::Rebuilt>& rules) {
  Json out = Json::array();
  for (const format::Rebuilt& rule : rules) {
    out.push_back({{"section", rule.section}, {"from", rule.from}, {"dtype", std::string(name_of(rule.dtype))}});
  }
  return out;
}

/// What a stored tensor is codes or scales of, or null.
Json coding_json(const Inspection& inspection, const format::StoredTensor& tensor) {
  const auto at = inspection.coded.find({tensor.section, tensor.name});
  if (at == inspection.coded.end()) return nullptr;
  const interop::QuantisedMoments& moments = *at->second;
  return {{"codec", moments.codec}, {"first", moments.first}, {"second", moments.second}, {"shape", moments.shape}};
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
  out["quantisation"] = manifest->quantisation;
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

Json tensors_json(const Inspection& inspection) {
  const format::StoredCheckpoint& stored = inspection.checkpoint.stored;
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
                   {"boxes", std::move(boxes)},
                   {"coding", coding_json(inspection, tensor)}});
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
    row["codings"] = codings_json(section.codings);
    document["sections"].push_back(std::move(row));
  }
  document["rebuilt"] = rebuilt_json(inspection.rebuilt);
  document["files"] = files_json(inspection);
  document["tensors"] = tensors_json(inspection);
  document["carried"] = opened.carried;
  document["notes"] = inspection.notes;
  print_json(output, document);
}

}  // namespace cairn::cli
