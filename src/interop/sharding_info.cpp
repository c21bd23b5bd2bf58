// Checked reading of the two JSON values.
#include "interop/sharding_info.hpp"

#include <fmt/core.h>

#include <set>
#include <string_view>

#include "base/json.hpp"
#include "base/json_reader.hpp"

namespace cairn::interop {
namespace {

using base::Json;
using base::JsonReader;

std::string place_of(const char* key, const std::string& file, const Reading& reading) {
  return fmt::format("{}: metadata {}", reading.raw_path_of(file), key);
}

std::set<std::string_view> names_in(const format::SafetensorsHeader& header) {
  std::set<std::string_view> names;
  for (const auto& entry : header.tensors) names.insert(entry.name);
  return names;
}

/// Throws for a name that is not a tensor of the file.
void check_held(const JsonReader::Member& member, const std::set<std::string_view>& held) {
  if (!held.contains(member.key)) {
    member.value.fail(fmt::format("the file does not hold tensor {}", in_quotes(member.key)));
  }
}

}  // namespace

bool has_sharding_info(const format::SafetensorsHeader& header) {
  return header.metadata.find(kDcpShardingInfoKey) != header.metadata.end();
}

std::map<std::string, std::vector<std::uint64_t>> read_sharding_info(const std::string& file, const Reading& reading) {
  const auto& header = reading.header(file);
  const std::string place = place_of(kDcpShardingInfoKey, file, reading);
  const Json json =
      Json::parse(header.metadata.at(kDcpShardingInfoKey), place, {.dialect = base::JsonDialect::kPython});
  const JsonReader object(json, place);
  const std::vector<JsonReader::Member> members = object.members();
  std::map<std::string_view, const JsonReader*> by_name;  // since object.at() searches from the start
  for (const auto& member : members) by_name.emplace(member.key, &member.value);
  std::map<std::string, std::vector<std::uint64_t>> out;
  for (const auto& entry : header.tensors) {
    const auto found = by_name.find(entry.name);
    const JsonReader info = found == by_name.end() ? object.at(entry.name) : *found->second;
    auto offsets = info.at("saved_offsets").numbers();
    if (offsets.size() != entry.shape.size()) {
      throw reading.error(ErrorKind::kFormat, file,
                          fmt::format("tensor {} has {} dimensions, its saved_offsets {}", in_quotes(entry.name),
                                      entry.shape.size(), offsets.size()));
    }
    out.emplace(entry.name, std::move(offsets));
  }
  if (out.size() != json.size()) {
    const auto held = names_in(header);
    for (const auto& member : members) check_held(member, held);
  }
  return out;
}

std::map<std::string, SectionedName> read_sections(const std::string& file, const Reading& reading) {
  const auto& header = reading.header(file);
  std::map<std::string, SectionedName> out;
  const auto text = header.metadata.find(kCairnSectionsKey);
  if (text == header.metadata.end()) return out;
  const std::string place = place_of(kCairnSectionsKey, file, reading);
  const Json json = Json::parse(text->second, place);
  const auto held = names_in(header);
  for (const auto& member : JsonReader(json, place).members()) {
    const auto pair = member.value.texts();
    if (pair.size() != 2 || pair[0].empty()) member.value.fail("is not a pair [section, name]");
    check_held(member, held);
    out.emplace(member.key, SectionedName{pair[0], pair[1]});
  }
  return out;
}

}  // namespace cairn::interop
