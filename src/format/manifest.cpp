// Writes and reads the manifest.
#include "format/manifest.hpp"
#include "base/internal_error.hpp"
#include "format/limits.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "base/bytes.hpp"
#include "base/json_reader.hpp"
#include "base/text.hpp"
#include "format/crc32c.hpp"
#include "format/hf_index.hpp"
#include "format/limits.hpp"
#include "format/manifest_keys.hpp"

namespace cairn::format {

// Writing. Empty optional keys are omitted; unknown keys are set first and must not shadow known ones.

namespace {

namespace keys = manifest_keys;
using base::Json;

std::string hex(std::uint32_t crc) { return fmt::format("{:08x}", crc); }

Json files_as_json(const std::vector<ManifestFile>& files) {
  return Json::array_of(files, [](const ManifestFile& file) {
    Json entry = Json::object();
    entry[keys::kFileName] = file.name;
    entry[keys::kFileSize] = file.size_bytes;
    entry[keys::kFileCrc] = hex(file.crc32c);
    if (!file.section.empty()) entry[keys::kFileSection] = file.section;
    if (!file.blocks_sha256.empty()) entry[keys::kFileSha256] = file.blocks_sha256;
    return entry;
  });
}

Json lineage_as_json(const std::vector<Life>& lineage) {
  return Json::array_of(lineage, [](const Life& life) {
    Json entry = {{keys::kLifeEpoch, life.epoch}, {keys::kLifeStep, life.step}};
    if (life.counter != 0) entry[keys::kLifeCounter] = life.counter;
    return entry;
  });
}

void set_unless_empty(Json& document, const char* key, const std::string& value) {
  if (!value.empty()) document[key] = value;
}

Json extra_keys(const Json& extra) {
  if (!extra.is_object()) throw base::internal_error("manifest: the extra keys are not an object");
  for (const std::string_view key : keys::kAll) {
    if (extra.contains(key)) {
      throw base::internal_error(fmt::format("manifest: '{}' stands among the extra keys, but has a meaning", key));
    }
  }
  return extra;
}

// Reading. Format and version are checked first; every key has one type; unknown keys go to Manifest::extra.

using base::JsonReader;

std::uint32_t crc_of(const JsonReader& value) {
  const std::string& digits = value.text();
  if (digits.size() != 8 || digits.find_first_not_of("0123456789abcdef") != std::string::npos) {
    value.fail(fmt::format("must be 8 lower-case hexadecimal digits, found '{}'", base::printable(digits, 40)));
  }
  return static_cast<std::uint32_t>(std::stoul(digits, nullptr, 16));
}

std::string sha256_of(const JsonReader& value) {
  const std::string& digits = value.text();
  if (digits.size() != 64 || digits.find_first_not_of("0123456789abcdef") != std::string::npos) {
    value.fail(fmt::format("must be 64 lower-case hexadecimal digits, found '{}'", base::printable(digits, 80)));
  }
  return digits;
}

/// Only this check finds damage that leaves the text readable.
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

/// A newer version can have any structure, but has its checksum in the same place, so that damage is not mistaken for a
/// newer version.
[[noreturn]] void fail_newer(const JsonReader& manifest, std::string_view text, std::string_view path,
                             const std::string& what) {
  try {
    if (manifest.has(keys::kManifestCrc) && own_checksum_place(text) != std::string_view::npos) {
      check_own_checksum(text, crc_of(manifest.at(keys::kManifestCrc)), path);
    }
    manifest.fail(what);
  } catch (const Error& error) {
    throw NewerManifest(error);
  }
}

/// Checked first, because a newer manifest may have a different structure.
void check_version(const JsonReader& manifest, std::string_view text, std::string_view path) {
  if (manifest.at(keys::kFormat).text() != keys::kFormatName) {
    manifest.fail(fmt::format("'{}' is not '{}'; this is not a manifest of a Cairn checkpoint", keys::kFormat,
                              keys::kFormatName));
  }
  const std::uint64_t version = manifest.at(keys::kFormatVersion).number();
  if (version > static_cast<std::uint64_t>(kManifestVersion)) {
    fail_newer(
        manifest, text, path,
        fmt::format("the checkpoint has format version {}, this build of Cairn reads up to {}; use a newer Cairn",
                    version, kManifestVersion));
  }
  if (version < static_cast<std::uint64_t>(kManifestVersion)) {
    manifest.fail(fmt::format("format version {} does not exist", version));
  }
}

std::vector<ManifestFile> read_files(const JsonReader& list) {
  std::vector<ManifestFile> out;
  for (const JsonReader& entry : list.items()) {
    ManifestFile file;
    file.name = entry.at(keys::kFileName).text();
    check_relative_path(file.name, entry.where());
    file.section = entry.text_or(keys::kFileSection, "");
    file.size_bytes = entry.at(keys::kFileSize).number();
    file.crc32c = crc_of(entry.at(keys::kFileCrc));
    if (const auto digest = entry.find(keys::kFileSha256)) file.blocks_sha256 = sha256_of(*digest);
    out.push_back(std::move(file));
  }
  return out;
}

/// The name of another checkpoint's directory; empty if the key is missing.
std::string read_directory_name(const JsonReader& manifest, const char* key) {
  const auto name = manifest.find(key);
  if (!name || name->text().empty()) return {};
  check_relative_path(name->text(), name->where());
  return name->text();
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

std::uint64_t epoch_in(const JsonReader& value) {
  const std::uint64_t epoch = value.number();
  if (epoch > limits::kEpoch) value.fail(fmt::format("{} is above {}", epoch, limits::kEpoch));
  return epoch;
}

double metric_in(const JsonReader& value) {
  const Json& json = value.json();
  const bool is_number = json.is_number_float() || json.is_number_unsigned() || json.negative_number() != nullptr;
  if (!is_number) value.fail(fmt::format("must be a number, found {}", json.type_name()));
  return json.real_number();
}

Rebuilt rule_of(const std::string& section, const JsonReader& rule) {
  rule.check_keys({"from", "dtype"});
  const std::string& from = rule.at("from").text();
  const std::string& name = rule.at("dtype").text();
  const std::optional<DType> dtype = dtype_from_name(name);
  if (section == kMasterWeightsSection && from == kModelSection && dtype == DType::kF32) {
    return {kMasterWeightsSection, kModelSection, *dtype};
  }
  if (section == kModelSection && from == kMasterWeightsSection && (dtype == DType::kBF16 || dtype == DType::kF16)) {
    return {kModelSection, kMasterWeightsSection, *dtype};
  }
  rule.fail(fmt::format("from '{}' in {} is none of: '{}' from '{}' in F32, '{}' from '{}' in BF16 or F16",
                        base::printable(from), base::printable(name), kMasterWeightsSection, kModelSection,
                        kModelSection, kMasterWeightsSection));
}

}  // namespace

std::string encode_manifest(const Manifest& manifest) {
  Json document = extra_keys(manifest.extra);
  document[keys::kFormat] = keys::kFormatName;
  document[keys::kFormatVersion] = kManifestVersion;
  document[keys::kTool] = manifest.tool;
  if (manifest.has_step) document[keys::kStep] = manifest.step;
  set_unless_empty(document, keys::kRunId, manifest.run_id);
  set_unless_empty(document, keys::kForm, manifest.form);
  set_unless_empty(document, keys::kParent, manifest.parent);
  if (manifest.epoch != 0) document[keys::kEpoch] = manifest.epoch;
  if (manifest.counter != 0) document[keys::kCounter] = manifest.counter;
  if (!manifest.lineage.empty()) document[keys::kLineage] = lineage_as_json(manifest.lineage);
  document[keys::kKind] = manifest.part ? keys::kPartKind : keys::kWholeKind;
  if (manifest.part) {
    document[keys::kPart] = part_as_json(*manifest.part);
    if (manifest.part->base) document[keys::kBase] = base_as_json(*manifest.part->base);
  }
  set_unless_empty(document, keys::kLayout, manifest.layout);
  if (manifest.ranks != 0) document[keys::kRanks] = manifest.ranks;
  if (manifest.rank_blobs != 0) document[keys::kRankBlobs] = manifest.rank_blobs;
  document[keys::kBlockBytes] = manifest.block_bytes;
  document[keys::kBlocksCrc] = hex(manifest.blocks_crc32c);
  document[keys::kDataFiles] = files_as_json(manifest.data_files);
  document[keys::kCarriedFiles] = files_as_json(manifest.carried_files);
  if (!manifest.user_metadata.empty()) document[keys::kUserMetadata] = manifest.user_metadata;
  if (!manifest.metrics.empty()) document[keys::kMetrics] = manifest.metrics;
  if (!manifest.quantisation.empty()) document[keys::kQuantisation] = manifest.quantisation;
  document[keys::kManifestCrc] = hex(0);
  std::string text = base::python_json(document);
  const std::size_t digits = own_checksum_place(text);
  text.replace(digits, kChecksumDigits, hex(crc32c(base::as_bytes(text))));
  return text;
}

Manifest parse_manifest(std::string_view text, std::string_view path) {
  // Enough for any map of strings in a manifest of the largest size (256 MiB).
  constexpr std::uint64_t kMostMemoryBytes = 2ULL << 30;
  Json document = base::Json::parse(text, path, {.memory_bytes = kMostMemoryBytes});
  const JsonReader reader(document, path);
  Manifest manifest;
  check_version(reader, text, path);
  manifest.tool = reader.at(keys::kTool).text();
  manifest.has_step = reader.has(keys::kStep);
  manifest.step = reader.number_or(keys::kStep, 0);
  manifest.run_id = reader.text_or(keys::kRunId, "");
  manifest.form = reader.text_or(keys::kForm, "");
  manifest.parent = read_directory_name(reader, keys::kParent);
  if (const auto epoch = reader.find(keys::kEpoch)) manifest.epoch = epoch_in(*epoch);
  manifest.counter = reader.number_or(keys::kCounter, 0);
  if (const auto lineage = reader.find(keys::kLineage)) {
    for (const JsonReader& life : lineage->items()) {
      manifest.lineage.push_back({epoch_in(life.at(keys::kLifeEpoch)), life.at(keys::kLifeStep).number(),
                                  life.number_or(keys::kLifeCounter, 0)});
    }
  }
  if (const std::string kind = reader.text_or(keys::kKind, keys::kWholeKind); kind == keys::kPartKind) {
    manifest.part = read_part(reader.at(keys::kPart));
    if (const auto base = reader.find(keys::kBase)) manifest.part->base = read_base(*base);
  } else if (kind != keys::kWholeKind) {
    fail_newer(reader, text, path,
               fmt::format("'{}' is '{}', and this build of Cairn reads '{}' and '{}' only; use a newer Cairn",
                           keys::kKind, base::printable(kind, 40), keys::kWholeKind, keys::kPartKind));
  }
  manifest.layout = reader.text_or(keys::kLayout, "");
  manifest.ranks = reader.number_or(keys::kRanks, 0);
  manifest.rank_blobs = reader.number_or(keys::kRankBlobs, 0);
  manifest.block_bytes = reader.at(keys::kBlockBytes).number();
  if (manifest.block_bytes == 0) reader.fail(fmt::format("'{}' is 0", keys::kBlockBytes));
  manifest.blocks_crc32c = crc_of(reader.at(keys::kBlocksCrc));
  manifest.data_files = read_files(reader.at(keys::kDataFiles));
  manifest.carried_files = read_files(reader.at(keys::kCarriedFiles));
  check_unique(manifest, path);
  if (const auto metadata = reader.find(keys::kUserMetadata)) {
    for (const auto& [key, value] : metadata->members()) manifest.user_metadata.emplace(key, value.text());
  }
  if (const auto metrics = reader.find(keys::kMetrics)) {
    for (const auto& [key, value] : metrics->members()) manifest.metrics.emplace(key, metric_in(value));
  }
  if (const auto quantisation = reader.find(keys::kQuantisation)) {
    quantisation->check_object();
    manifest.quantisation = quantisation->json();
  }
  check_own_checksum(text, crc_of(reader.at(keys::kManifestCrc)), path);
  for (const std::string_view key : keys::kAll) document.take(key);
  manifest.extra = std::move(document);
  return manifest;
}

std::vector<Rebuilt> parse_rebuilt(const base::Json& extra, std::string_view path) {
  std::vector<Rebuilt> rules;
  if (const auto rebuilt = JsonReader(extra, path).find(kRebuiltKey)) {
    for (const auto& [section, rule] : rebuilt->members()) rules.push_back(rule_of(section, rule));
  }
  return rules;
}

}  // namespace cairn::format
