// Checked reading of the two JSON texts.
#include "interop/sharding_info.hpp"

#include <fmt/core.h>

#include <set>
#include <string_view>

#include "base/json.hpp"

namespace cairn::interop {
namespace {

using base::Json;

/// The object under a metadata key.
Json parse_object(const std::string& text, const char* key, const std::string& file, const Reading& reading) {
  Json object = base::Json::parse(text, fmt::format("{}: metadata {}", reading.raw_path_of(file), key));
  if (!object.is_object()) {
    throw reading.error(ErrorKind::kFormat, file, fmt::format("its metadata {} is not a JSON object", key));
  }
  return object;
}

std::set<std::string_view> names_in(const format::SafetensorsHeader& header) {
  std::set<std::string_view> names;
  for (const auto& entry : header.tensors) names.insert(entry.name);
  return names;
}

std::vector<std::uint64_t> offsets_of(const Json& info, const std::string& tensor, const std::string& file,
                                      const Reading& reading) {
  const Json* found = info.find("saved_offsets");
  if (found == nullptr || !found->is_array()) {
    throw reading.error(
        ErrorKind::kFormat, file,
        fmt::format("{} has no list saved_offsets for tensor {}", kDcpShardingInfoKey, in_quotes(tensor)));
  }
  std::vector<std::uint64_t> offsets;
  for (const Json& value : found->elements()) {
    if (!value.is_number_unsigned()) {
      throw reading.error(ErrorKind::kFormat, file,
                          fmt::format("{}: saved_offsets of tensor {} are not all whole numbers from 0",
                                      kDcpShardingInfoKey, in_quotes(tensor)));
    }
    offsets.push_back(value.whole_number());
  }
  return offsets;
}

}  // namespace

bool has_sharding_info(const format::SafetensorsHeader& header) {
  return header.metadata.find(kDcpShardingInfoKey) != header.metadata.end();
}

std::map<std::string, std::vector<std::uint64_t>> read_sharding_info(const std::string& file, const Reading& reading) {
  const auto& header = reading.header(file);
  const Json object = parse_object(header.metadata.at(kDcpShardingInfoKey), kDcpShardingInfoKey, file, reading);
  std::map<std::string, std::vector<std::uint64_t>> out;
  for (const auto& entry : header.tensors) {
    const Json* found = object.find(entry.name);
    if (found == nullptr) {
      throw reading.error(ErrorKind::kFormat, file,
                          fmt::format("tensor {} has no entry in {}", in_quotes(entry.name), kDcpShardingInfoKey));
    }
    auto offsets = offsets_of(*found, entry.name, file, reading);
    if (offsets.size() != entry.shape.size()) {
      throw reading.error(ErrorKind::kFormat, file,
                          fmt::format("tensor {} has {} dimensions, its saved_offsets {}", in_quotes(entry.name),
                                      entry.shape.size(), offsets.size()));
    }
    out.emplace(entry.name, std::move(offsets));
  }
  if (out.size() != object.size()) {
    const auto held = names_in(header);
    for (const auto& item : object.items()) {
      if (held.contains(item.key)) continue;
      throw reading.error(
          ErrorKind::kFormat, file,
          fmt::format("{} names tensor {}, which the file does not hold", kDcpShardingInfoKey, in_quotes(item.key)));
    }
  }
  return out;
}

std::map<std::string, SectionedName> read_sections(const std::string& file, const Reading& reading) {
  const auto& header = reading.header(file);
  std::map<std::string, SectionedName> out;
  const auto text = header.metadata.find(kCairnSectionsKey);
  if (text == header.metadata.end()) return out;
  const Json object = parse_object(text->second, kCairnSectionsKey, file, reading);
  const auto held = names_in(header);
  for (const auto& item : object.items()) {
    const Json& value = item.value;
    const auto pair = value.is_array() ? value.elements() : std::span<const Json>();
    if (pair.size() != 2 || !pair[0].is_string() || !pair[1].is_string() || pair[0].text().empty()) {
      throw reading.error(
          ErrorKind::kFormat, file,
          fmt::format("{} of tensor {} is not a pair [section, name]", kCairnSectionsKey, in_quotes(item.key)));
    }
    if (!held.contains(item.key)) {
      throw reading.error(
          ErrorKind::kFormat, file,
          fmt::format("{} names tensor {}, which the file does not hold", kCairnSectionsKey, in_quotes(item.key)));
    }
    out.emplace(item.key, SectionedName{pair[0].text(), pair[1].text()});
  }
  return out;
}

}  // namespace cairn::interop
