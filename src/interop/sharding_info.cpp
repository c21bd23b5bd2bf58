// Checked reading of the two JSON texts.
#include "interop/sharding_info.hpp"

#include <fmt/format.h>

#include <set>
#include <string_view>

#include "format/json_text.hpp"

namespace cairn::interop {
namespace {

using nlohmann::json;

/// The object under a metadata key.
json parse_object(const std::string& text, const char* key, const std::string& file, const Reading& reading) {
  json object = format::parse_strict_json(text, fmt::format("{}: metadata {}", reading.raw_path_of(file), key));
  if (!object.is_object()) {
    throw reading.error(ErrorKind::kFormat, file, fmt::format("its metadata {} is no JSON object", key));
  }
  return object;
}

std::set<std::string_view> names_in(const format::SafetensorsHeader& header) {
  std::set<std::string_view> names;
  for (const auto& entry : header.tensors) names.insert(entry.name);
  return names;
}

std::vector<std::uint64_t> offsets_of(const json& info, const std::string& tensor, const std::string& file,
                                      const Reading& reading) {
  const auto found = info.is_object() ? info.find("saved_offsets") : info.end();
  if (!info.is_object() || found == info.end() || !found->is_array()) {
    throw reading.error(
        ErrorKind::kFormat, file,
        fmt::format("{} has no list saved_offsets for tensor {}", kDcpShardingInfoKey, in_quotes(tensor)));
  }
  std::vector<std::uint64_t> offsets;
  for (const json& value : *found) {
    if (!value.is_number_unsigned()) {
      throw reading.error(ErrorKind::kFormat, file,
                          fmt::format("{}: saved_offsets of tensor {} are not all whole numbers from 0",
                                      kDcpShardingInfoKey, in_quotes(tensor)));
    }
    offsets.push_back(value.get<std::uint64_t>());
  }
  return offsets;
}

}  // namespace

bool has_sharding_info(const format::SafetensorsHeader& header) {
  return header.metadata.find(kDcpShardingInfoKey) != header.metadata.end();
}

std::map<std::string, std::vector<std::uint64_t>> read_sharding_info(const std::string& file, const Reading& reading) {
  const auto& header = reading.header(file);
  const json object = parse_object(header.metadata.at(kDcpShardingInfoKey), kDcpShardingInfoKey, file, reading);
  std::map<std::string, std::vector<std::uint64_t>> out;
  for (const auto& entry : header.tensors) {
    const auto found = object.find(entry.name);
    if (found == object.end()) {
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
      if (held.contains(item.key())) continue;
      throw reading.error(
          ErrorKind::kFormat, file,
          fmt::format("{} names tensor {}, which the file does not hold", kDcpShardingInfoKey, in_quotes(item.key())));
    }
  }
  return out;
}

std::map<std::string, SectionedName> read_sections(const std::string& file, const Reading& reading) {
  const auto& header = reading.header(file);
  std::map<std::string, SectionedName> out;
  const auto text = header.metadata.find(kCairnSectionsKey);
  if (text == header.metadata.end()) return out;
  const json object = parse_object(text->second, kCairnSectionsKey, file, reading);
  const auto held = names_in(header);
  for (const auto& item : object.items()) {
    const json& value = item.value();
    if (!value.is_array() || value.size() != 2 || !value[0].is_string() || !value[1].is_string() ||
        value[0].get_ref<const std::string&>().empty()) {
      throw reading.error(
          ErrorKind::kFormat, file,
          fmt::format("{} of tensor {} is no pair [section, name]", kCairnSectionsKey, in_quotes(item.key())));
    }
    if (!held.contains(item.key())) {
      throw reading.error(
          ErrorKind::kFormat, file,
          fmt::format("{} names tensor {}, which the file does not hold", kCairnSectionsKey, in_quotes(item.key())));
    }
    out.emplace(item.key(), SectionedName{value[0].get<std::string>(), value[1].get<std::string>()});
  }
  return out;
}

}  // namespace cairn::interop
