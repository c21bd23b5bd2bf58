#include "interop/aliases.hpp"

#include <fmt/core.h>

#include <set>
#include <string_view>

#include "interop/reading.hpp"

namespace cairn::interop {
namespace {

/// save_model() sets this key itself. Most files have no other, and a walk over all tensors is then needless.
constexpr std::string_view kFormatKey = "format";

/// Whether both texts have the form of names of one kind of parameter: "model.shared.weight".
bool are_like_parameters(std::string_view a, std::string_view b) {
  return (a.ends_with(".weight") && b.ends_with(".weight")) || (a.ends_with(".bias") && b.ends_with(".bias"));
}

}  // namespace

Aliases aliases_of(const std::map<std::string, std::string>& metadata, const plan::StoredTensors& tensors) {
  Aliases out;
  std::set<std::string_view> wanted;
  for (const auto& [key, value] : metadata) {
    if (key != kFormatKey) wanted.insert({key, value});
  }
  if (wanted.empty()) return out;
  std::set<std::string, std::less<>> stored;
  for (auto cursor = tensors.cursor(); cursor.next();) {
    if (wanted.contains(cursor.name())) stored.emplace(cursor.name());
  }
  for (const auto& [removed, kept] : metadata) {
    if (removed == kFormatKey || stored.contains(removed)) continue;
    if (stored.contains(kept)) {
      out.kept_of.emplace(removed, kept);
    } else if (are_like_parameters(removed, kept)) {
      out.dangling.push_back(fmt::format(
          "the metadata say that tensor {} is the same as {}, which is not stored either: neither can be loaded",
          in_quotes(removed), in_quotes(kept)));
    }
  }
  return out;
}

}  // namespace cairn::interop
