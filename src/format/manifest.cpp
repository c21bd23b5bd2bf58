// The manifest as text and from text.
#include "format/manifest.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <string>
#include <utility>

#include "base/bytes.hpp"
#include "base/json.hpp"
#include "base/text.hpp"
#include "cairn/error.hpp"
#include "format/crc32c.hpp"
#include "format/hf_index.hpp"
#include "format/manifest_keys.hpp"

namespace cairn::format {

// The manifest as text. Optional keys that are empty are left out; unknown keys come first and may not shadow known
// ones.

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
  if (!extra.is_object()) throw Error(ErrorKind::kInternal, "manifest: the extra keys are not an object");
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

// The manifest from text. The version is judged before any other key; every key has one type; what is unknown goes to
// Manifest::extra.

namespace {

namespace keys = manifest_keys;
using base::Json;

/// One JSON object whose values are asked for by key and type; errors name where it stands.
class Fields {
 public:
  Fields(const Json& object, std::string where) : object_(object), where_(std::move(where)) {
    if (!object.is_object()) base::fail_format(where_, fmt::format("must be an object, found {}", object.type_name()));
  }

  [[nodiscard]] const Json* find(const char* key) const { return object_.find(key); }

  [[nodiscard]] const Json& need(const char* key) const {
    const Json* value = find(key);
    if (value == nullptr) base::fail_format(where_, fmt::format("the key '{}' is missing", key));
    return *value;
  }

  [[noreturn]] void mistyped(const char* key, const char* expected, const Json& found) const {
    base::fail_format(where_, fmt::format("'{}' must be {}, found {}", key, expected, found.type_name()));
  }

  [[nodiscard]] std::uint64_t number(const char* key) const {
    const Json& value = need(key);
    if (!value.is_number_unsigned()) mistyped(key, "an unsigned integer", value);
    return value.whole_number();
  }

  [[nodiscard]] std::uint64_t number_or_zero(const char* key) const { return find(key) == nullptr ? 0 : number(key); }

  [[nodiscard]] std::string text(const char* key) const {
    const Json& value = need(key);
    if (!value.is_string()) mistyped(key, "a string", value);
    return value.text();
  }

  [[nodiscard]] std::string text_or_empty(const char* key) const { return find(key) == nullptr ? "" : text(key); }

  [[nodiscard]] std::uint32_t crc(const char* key) const {
    const std::string digits = text(key);
    const bool all_hex = digits.find_first_not_of("0123456789abcdef") == std::string::npos;
    std::uint32_t value = 0;
    const auto [end, status] = std::from_chars(digits.data(), digits.data() + digits.size(), value, 16);
    if (digits.size() != 8 || !all_hex || status != std::errc() || end != digits.data() + digits.size()) {
      base::fail_format(where_, fmt::format("'{}' must be 8 lower-case hexadecimal digits, found '{}'", key,
                                            base::printable(digits, 40)));
    }
    return value;
  }

 private:
  const Json& object_;
  std::string where_;
};

/// The version comes before everything else: a newer manifest may have any other shape.
int read_version(const Fields& fields, std::string_view path) {
  if (fields.text(keys::kFormat) != keys::kFormatName) {
    base::fail_format(path, fmt::format("'{}' is not '{}'; this is not a manifest of a Cairn checkpoint", keys::kFormat,
                                        keys::kFormatName));
  }
  const std::uint64_t version = fields.number(keys::kFormatVersion);
  if (version > static_cast<std::uint64_t>(kManifestVersion)) {
    base::fail_format(
        path, fmt::format("the checkpoint has format version {}, this build of Cairn reads up to {}; use a newer Cairn",
                          version, kManifestVersion));
  }
  if (version == 0) base::fail_format(path, "format version 0 does not exist");
  return static_cast<int>(version);
}

std::vector<ManifestFile> read_files(const Fields& manifest, const char* key, std::string_view path) {
  const Json& list = manifest.need(key);
  if (!list.is_array()) manifest.mistyped(key, "an array", list);
  std::vector<ManifestFile> out;
  out.reserve(list.size());
  for (const Json& entry : list.elements()) {
    const Fields fields(entry, fmt::format("{}: {}[{}]", path, key, out.size()));
    ManifestFile file;
    file.name = fields.text(keys::kFileName);
    check_relative_path(file.name, fmt::format("{}: {}[{}]", path, key, out.size()));
    file.section = fields.text_or_empty(keys::kFileSection);
    file.size_bytes = fields.number(keys::kFileSize);
    file.crc32c = fields.crc(keys::kFileCrc);
    out.push_back(std::move(file));
  }
  return out;
}

std::vector<Life> read_lineage(const Fields& manifest, std::string_view path) {
  std::vector<Life> lineage;
  const Json* list = manifest.find(keys::kLineage);
  if (list == nullptr) return lineage;
  if (!list->is_array()) manifest.mistyped(keys::kLineage, "an array", *list);
  for (const Json& entry : list->elements()) {
    const Fields fields(entry, fmt::format("{}: {}[{}]", path, keys::kLineage, lineage.size()));
    lineage.push_back({fields.number(keys::kLifeEpoch), fields.number(keys::kLifeStep)});
  }
  return lineage;
}

/// Damage that leaves the text readable is found here, and only here.
void check_own_checksum(std::string_view text, std::uint32_t expected, std::string_view path) {
  std::string zeroed(text);
  const std::size_t digits = own_checksum_place(text);
  if (digits == std::string_view::npos) {
    base::fail_format(path, fmt::format("'{}' is not in a line of its own: the file was rewritten by another program",
                                        keys::kManifestCrc));
  }
  zeroed.replace(digits, kChecksumDigits, kChecksumDigits, '0');
  const std::uint32_t found = crc32c(base::as_bytes(zeroed));
  if (found == expected) return;
  throw Error(ErrorKind::kIntegrity, fmt::format("{}: {}: the file was damaged or changed since", base::one_line(path),
                                                 mismatch_words(found, expected)));
}

void check_unique(const Manifest& manifest, std::string_view path) {
  std::vector<std::string_view> names;
  for (const ManifestFile& file : manifest.data_files) names.push_back(file.name);
  for (const ManifestFile& file : manifest.carried_files) names.push_back(file.name);
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  if (twice != names.end())
    base::fail_format(path, fmt::format("the file '{}' is listed twice", base::printable(*twice)));
}

std::map<std::string, std::string> read_user_metadata(const Fields& manifest, std::string_view path) {
  std::map<std::string, std::string> out;
  const Json* value = manifest.find(keys::kUserMetadata);
  if (value == nullptr) return out;
  if (!value->is_object()) manifest.mistyped(keys::kUserMetadata, "an object", *value);
  for (const auto& [key, text] : value->items()) {
    if (!text.is_string()) {
      base::fail_format(path, fmt::format("{}: '{}' must be a string, found {}", keys::kUserMetadata,
                                          base::printable(key), text.type_name()));
    }
    out.emplace(key, text.text());
  }
  return out;
}

}  // namespace

Manifest parse_manifest(std::string_view text, std::string_view path) {
  Json document = base::Json::parse(text, path);
  const Fields fields(document, std::string(path));
  Manifest manifest;
  manifest.version = read_version(fields, path);
  manifest.tool = fields.text(keys::kTool);
  manifest.has_step = fields.find(keys::kStep) != nullptr;
  manifest.step = fields.number_or_zero(keys::kStep);
  manifest.run_id = fields.text_or_empty(keys::kRunId);
  manifest.parent = fields.text_or_empty(keys::kParent);
  if (!manifest.parent.empty()) check_relative_path(manifest.parent, fmt::format("{}: {}", path, keys::kParent));
  manifest.epoch = fields.number_or_zero(keys::kEpoch);
  manifest.counter = fields.number_or_zero(keys::kCounter);
  manifest.lineage = read_lineage(fields, path);
  if (fields.find(keys::kKind) != nullptr) manifest.kind = fields.text(keys::kKind);
  if (manifest.kind != kWholeKind && manifest.kind != kAdapterKind && manifest.kind != kPartKind) {
    base::fail_format(path, fmt::format("'{}' is '{}', which this build of Cairn does not know; use a newer Cairn",
                                        keys::kKind, base::printable(manifest.kind, 40)));
  }
  manifest.base = fields.text_or_empty(keys::kBase);
  if (!manifest.base.empty()) check_relative_path(manifest.base, fmt::format("{}: {}", path, keys::kBase));
  manifest.layout = fields.text_or_empty(keys::kLayout);
  manifest.ranks = fields.number_or_zero(keys::kRanks);
  manifest.block_bytes = fields.number(keys::kBlockBytes);
  if (manifest.block_bytes == 0) base::fail_format(path, fmt::format("'{}' is 0", keys::kBlockBytes));
  manifest.blocks_crc32c = fields.crc(keys::kBlocksCrc);
  manifest.data_files = read_files(fields, keys::kDataFiles, path);
  manifest.carried_files = read_files(fields, keys::kCarriedFiles, path);
  check_unique(manifest, path);
  manifest.user_metadata = read_user_metadata(fields, path);
  if (const Json* quantisation = fields.find(keys::kQuantisation)) {
    if (!quantisation->is_object()) fields.mistyped(keys::kQuantisation, "an object", *quantisation);
    manifest.quantisation = *quantisation;
  }
  if (manifest.version > 1 || fields.find(keys::kManifestCrc) != nullptr) {
    check_own_checksum(text, fields.crc(keys::kManifestCrc), path);
  }
  for (const std::string_view key : keys::kAll) document.take(key);
  manifest.extra = std::move(document);
  return manifest;
}

namespace {

Error wrong(std::string_view path, std::string_view what) {
  return {ErrorKind::kFormat, fmt::format("'{}': {}: {}", base::printable(path), kRebuiltKey, what)};
}

std::string text_of(const base::Json& rule, const char* key, std::string_view path) {
  const base::Json* field = rule.find(key);
  if (field == nullptr || !field->is_string()) throw wrong(path, fmt::format("{} is not a string", key));
  return field->text();
}

Rebuilt rule_of(const std::string& section, const base::Json& rule, std::string_view path) {
  if (!rule.is_object() || rule.size() != 2) {
    throw wrong(path, fmt::format("'{}' is not an object of from and dtype", base::printable(section)));
  }
  const std::string from = text_of(rule, "from", path);
  const std::string name = text_of(rule, "dtype", path);
  const std::optional<DType> dtype = dtype_from_name(name);
  if (section == kMasterWeightsSection && from == kModelSection && dtype == DType::kF32) {
    return {kMasterWeightsSection, kModelSection, *dtype};
  }
  if (section == kModelSection && from == kMasterWeightsSection && (dtype == DType::kBF16 || dtype == DType::kF16)) {
    return {kModelSection, kMasterWeightsSection, *dtype};
  }
  throw wrong(path, fmt::format("'{}' from '{}' in {} is none of: '{}' from '{}' in F32, '{}' from '{}' in BF16 or F16",
                                base::printable(section), base::printable(from), base::printable(name),
                                kMasterWeightsSection, kModelSection, kModelSection, kMasterWeightsSection));
}

}  // namespace

std::vector<Rebuilt> parse_rebuilt(const base::Json& extra, std::string_view path) {
  const base::Json* value = extra.find(kRebuiltKey);
  if (value == nullptr) return {};
  if (!value->is_object()) throw wrong(path, "is not an object");
  std::vector<Rebuilt> rules;
  for (const auto& [section, rule] : value->items()) rules.push_back(rule_of(section, rule, path));
  return rules;
}

}  // namespace cairn::format
