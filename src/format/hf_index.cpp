// The index as a table of file names: read strictly (hf_index_encode.cpp writes it).
// Every file name is checked here, so that a caller may join it to the directory.
#include "format/hf_index.hpp"

#include <fmt/core.h>

#include <utility>

#include "base/json.hpp"
#include "base/text.hpp"
#include "cairn/error.hpp"

namespace cairn::format {
namespace {

using base::Json;

std::map<std::string, std::string> read_weight_map(const Json& map, std::string_view path) {
  if (!map.is_object())
    base::fail_format(path, fmt::format("'weight_map' must be an object, found {}", map.type_name()));
  std::map<std::string, std::string> out;
  for (const auto& [name, file] : map.items()) {
    const std::string where = fmt::format("{}: tensor '{}'", path, base::printable(name));
    if (!file.is_string()) {
      base::fail_format(where, fmt::format("its weight_map value must be a file name, found {}", file.type_name()));
    }
    const std::string& file_name = file.text();
    check_relative_path(file_name, where);
    out.emplace(name, file_name);
  }
  return out;
}

}  // namespace

HfIndex parse_hf_index(std::string_view text, std::string_view path) {
  Json document = base::Json::parse(text, path);
  if (!document.is_object())
    base::fail_format(path, fmt::format("an index must be an object, found {}", document.type_name()));
  if (!document.contains("weight_map"))
    base::fail_format(path, "the key 'weight_map' is missing; this is no index of tensors");
  HfIndex index;
  index.weight_map = read_weight_map(document.take("weight_map"), path);
  if (document.contains("metadata")) {
    index.metadata = document.take("metadata");
    if (!index.metadata.is_object()) {
      base::fail_format(path, fmt::format("'metadata' must be an object, found {}", index.metadata.type_name()));
    }
  }
  index.extra = std::move(document);
  return index;
}

}  // namespace cairn::format
