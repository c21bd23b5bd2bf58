// The index as a table of file names: read strictly (hf_index_encode.cpp writes it).
// Every file name is checked here, so that a caller may join it to the directory.
#include "format/hf_index.hpp"

#include <fmt/format.h>

#include <utility>

#include "base/units.hpp"
#include "cairn/error.hpp"
#include "format/json_text.hpp"
#include "format/message.hpp"

namespace cairn::format {
namespace {

using nlohmann::json;

std::map<std::string, std::string> read_weight_map(const json& map, std::string_view path) {
  if (!map.is_object()) fail_format(path, fmt::format("'weight_map' must be an object, found {}", map.type_name()));
  std::map<std::string, std::string> out;
  for (const auto& [name, file] : map.items()) {
    const std::string where = fmt::format("{}: tensor '{}'", path, base::printable(name));
    if (!file.is_string()) {
      fail_format(where, fmt::format("its weight_map value must be a file name, found {}", file.type_name()));
    }
    const auto& file_name = file.get_ref<const std::string&>();
    check_relative_path(file_name, where);
    out.emplace_hint(out.end(), name, file_name);
  }
  return out;
}

}  // namespace

HfIndex parse_hf_index(std::string_view text, std::string_view path) {
  json document = parse_strict_json(text, path);
  if (!document.is_object())
    fail_format(path, fmt::format("an index must be an object, found {}", document.type_name()));
  const auto map = document.find("weight_map");
  if (map == document.end()) fail_format(path, "the key 'weight_map' is missing; this is no index of tensors");
  HfIndex index;
  index.weight_map = read_weight_map(*map, path);
  document.erase(map);
  const auto metadata = document.find("metadata");
  if (metadata != document.end()) {
    if (!metadata->is_object()) {
      fail_format(path, fmt::format("'metadata' must be an object, found {}", metadata->type_name()));
    }
    index.metadata = std::move(*metadata);
    document.erase(metadata);
  }
  index.extra = std::move(document);
  return index;
}

}  // namespace cairn::format
