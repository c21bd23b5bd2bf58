#include "export/convert_source.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "base/counted.hpp"
#include "base/units.hpp"
#include "cairn/error.hpp"
#include "checkpoint/engine_choice.hpp"
#include "checkpoint/save.hpp"
#include "directory/carried.hpp"
#include "directory/commit.hpp"
#include "directory/open_stage.hpp"
#include "format/blocks.hpp"
#include "format/coding.hpp"
#include "format/rebuilt.hpp"
#include "interop/file_names.hpp"
#include "interop/reading.hpp"

namespace cairn::checkpoint {

View view_for(const OpenCheckpoint& source, const std::filesystem::path& destination, const ConvertOptions& options,
              std::vector<std::string>& notes) {
  const bool holds_values_only = options.shards || is_stage_name(destination);
  if (options.quant != "keep" && options.quant != "off") {
    (void)quant::find_codec(options.quant);
    if (holds_values_only) {
      throw Error(ErrorKind::kUsage,
                  fmt::format("{} hold no codes: convert to Hugging Face files to have moments in {}",
                              options.shards ? "shards" : "staging files", options.quant));
    }
  }
  if (options.quant == "keep" && !holds_values_only) return stored_view(source);
  View view = decoded_view(source, {options.paddle_reciprocals, false});
  if (!view.as_stored && options.quant == "keep") {
    const auto made = std::count_if(view.tensors.begin(), view.tensors.end(),
                                    [](const ViewTensor& tensor) { return tensor.origin != Origin::kStored; });
    notes.push_back(fmt::format("{} hold no codes and leave no weights out: {} decoded or made from others",
                                options.shards ? "shards" : "staging files",
                                base::counted(static_cast<std::uint64_t>(made), "tensor is", "tensors are")));
  }
  return view;
}

plan::Catalog catalog_of(const View& view) {
  std::vector<plan::CatalogTensor> tensors;
  for (const ViewTensor& tensor : view.tensors) {
    tensors.push_back({std::string(tensor.section),
                       std::string(tensor.name),
                       tensor.dtype,
                       {tensor.shape.begin(), tensor.shape.end()},
                       {}});
  }
  if (view.as_stored) {
    for (const CodedPair& pair : view.pairs) tensors[pair.stored.at(0)].coding = format::encode_coding(*pair.moments);
  }
  return plan::make_catalog(std::move(tensors));
}

base::Json unknown_keys(const OpenCheckpoint& source) {
  base::Json keys = source.manifest ? source.manifest->extra : base::Json::object();
  for (const char* key : {format::kRebuiltKey, kEngineKey, kHintsKey}) keys.take(key);
  return keys;
}

void note_disputed_metadata(const OpenCheckpoint& source, std::vector<std::string>& notes) {
  if (source.disputed_metadata.empty()) return;
  notes.push_back(fmt::format("the source's files disagree about metadata {}; the first file's is kept",
                              interop::list_some(source.disputed_metadata)));
}

void describe_codes(const OpenCheckpoint& source, const View& view, format::Manifest& manifest) {
  manifest.quantisation = base::Json::object();
  manifest.extra = unknown_keys(source);
  if (!view.as_stored) return;
  for (const CodedPair& pair : view.pairs) manifest.quantisation[pair.moments->section] = pair.moments->codec;
  if (!source.manifest) return;
  const base::Json* rebuilt = source.manifest->extra.find(format::kRebuiltKey);
  if (rebuilt != nullptr) manifest.extra[format::kRebuiltKey] = *rebuilt;
}

std::vector<std::string> files_to_carry(const OpenCheckpoint& source, std::vector<std::string>& notes) {
  const auto is_listed = [&](const std::string& name) {
    if (is_stage(source)) return true;
    if (!source.manifest) return false;
    return std::ranges::find(source.manifest->carried_files, name, &format::ManifestFile::name) !=
           source.manifest->carried_files.end();
  };
  std::vector<std::string> taken;
  std::vector<std::string> left;
  for (const std::string& name : source.carried) {
    (is_listed(name) || interop::belongs_to_model(name) ? taken : left).push_back(name);
  }
  if (!left.empty()) {
    notes.push_back(fmt::format("left behind, since neither weights that are read nor small files of a model: {}",
                                interop::list_some(left)));
  }
  return taken;
}

std::map<std::string, base::ByteStream> streams_of(const OpenCheckpoint& source,
                                                   const std::vector<std::string>& files) {
  std::map<std::string, base::ByteStream> streams;
  for (const std::string& name : files) streams.emplace(name, carried_stream(source, name));
  return streams;
}

ReadOptions reading_half(const ReadOptions& options) {
  ReadOptions half = options;
  half.memory_budget_bytes = std::max(options.memory_budget_bytes / 2, smallest_budget(format::kDefaultBlockBytes));
  return half;
}

}  // namespace cairn::checkpoint
