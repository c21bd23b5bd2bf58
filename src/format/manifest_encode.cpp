// The manifest as text. Optional keys that are empty are left out; unknown keys come first and may not shadow known ones.
#include <fmt/core.h>

#include "base/bytes.hpp"
#include "base/json.hpp"
#include "base/text.hpp"
#include "cairn/error.hpp"
#include "format/crc32c.hpp"
#include "format/manifest.hpp"
#include "format/manifest_checksum.hpp"
#include "format/manifest_keys.hpp"

namespace cairn::format {
namespace {

namespace keys = manifest_keys;
using base::Json;

std::string hex(std::uint32_t crc) { return fmt::format("{:08x}", crc); }

Json files_as_json(const std::vector<ManifestFile>& files) {
  Json out = Json::array();
  for (const ManifestFile& file : files) {
    Json entry = Json::object();
    entry[keys::kFileName] = file.name;
    entry[keys::kFileSize] = file.size_bytes;
    entry[keys::kFileCrc] = hex(file.crc32c);
    if (!file.section.empty()) entry[keys::kFileSection] = file.section;
    out.push_back(std::move(entry));
  }
  return out;
}

Json lineage_as_json(const std::vector<Life>& lineage) {
  Json out = Json::array();
  for (const Life& life : lineage) out.push_back({{keys::kLifeEpoch, life.epoch}, {keys::kLifeStep, life.step}});
  return out;
}

void set_unless_empty(Json& document, const char* key, const std::string& value) {
  if (!value.empty()) document[key] = value;
}

Json extra_keys(const Json& extra) {
  if (!extra.is_object()) throw Error(ErrorKind::kInternal, "manifest: the extra keys are no object");
  for (const std::string_view key : keys::kAll) {
    if (extra.contains(key)) {
      throw Error(ErrorKind::kInternal,
                  fmt::format("manifest: '{}' stands among the extra keys, but has a meaning", key));
    }
  }
  return extra;
}

}  // namespace

std::string encode_manifest(const Manifest& manifest) {
  Json document = extra_keys(manifest.extra);
  document[keys::kFormat] = keys::kFormatName;
  document[keys::kFormatVersion] = kManifestVersion;
  document[keys::kTool] = manifest.tool;
  if (manifest.has_step) document[keys::kStep] = manifest.step;
  set_unless_empty(document, keys::kRunId, manifest.run_id);
  set_unless_empty(document, keys::kParent, manifest.parent);
  if (manifest.epoch != 0) document[keys::kEpoch] = manifest.epoch;
  if (manifest.counter != 0) document[keys::kCounter] = manifest.counter;
  if (!manifest.lineage.empty()) document[keys::kLineage] = lineage_as_json(manifest.lineage);
  document[keys::kKind] = manifest.kind;
  set_unless_empty(document, keys::kBase, manifest.base);
  set_unless_empty(document, keys::kLayout, manifest.layout);
  if (manifest.ranks != 0) document[keys::kRanks] = manifest.ranks;
  document[keys::kBlockBytes] = manifest.block_bytes;
  document[keys::kBlocksCrc] = hex(manifest.blocks_crc32c);
  document[keys::kDataFiles] = files_as_json(manifest.data_files);
  document[keys::kCarriedFiles] = files_as_json(manifest.carried_files);
  if (!manifest.user_metadata.empty()) document[keys::kUserMetadata] = manifest.user_metadata;
  if (!manifest.quantisation.empty()) document[keys::kQuantisation] = manifest.quantisation;
  document[keys::kManifestCrc] = hex(0);
  std::string text = base::python_json(document);
  const std::size_t digits = own_checksum_place(text);
  text.replace(digits, kChecksumDigits, hex(crc32c(base::as_bytes(text))));
  return text;
}

}  // namespace cairn::format
