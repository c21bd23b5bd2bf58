#include "interop/aliases.hpp"

#include <fmt/core.h>

#include <set>
#include <string_view>

#include "interop/reading.hpp"

namespace cairn::interop {
namespace {

/// Whether the text has the form of a parameter's name: "model.shared.weight".
bool is_like_parameter(std::string_view text) { return text.ends_with(".weight") || text.ends_with(".bias"); }

std::string_view last_part(std::string_view name) { return name.substr(name.rfind('.') + 1); }

}  // namespace

Aliases aliases_of(const std::map<std::string, std::string>& metadata, const plan::StoredTensors& tensors) {
  Aliases out;
  if (metadata.empty()) return out;
  std::set<std::string_view> wanted;
  for (const auto& [key, value] : metadata) wanted.insert({key, value});
  std::set<std::string, std::less<>> stored;
  for (auto cursor = tensors.cursor(); cursor.next();) {
    if (wanted.contains(cursor.name())) stored.emplace(cursor.name());
  }
  for (const auto& [removed, kept] : metadata) {
    if (stored.contains(removed)) continue;
    if (stored.contains(kept)) {
      out.kept_of.emplace(removed, kept);
    } else if (is_like_parameter(removed) && is_like_parameter(kept) && last_part(removed) == last_part(kept)) {
      out.dangling.push_back(fmt::format(
          "the metadata say that tensor {} is the same as {}, which is not stored either: neither can be loaded",
          in_quotes(removed), in_quotes(kept)));
    }
  }
  return out;
}

}  // namespace cairn::interop
