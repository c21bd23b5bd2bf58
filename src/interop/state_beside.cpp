#include "interop/state_beside.hpp"

#include <fmt/core.h>

#include <optional>

#include "base/json.hpp"

namespace cairn::interop {
namespace {

/// An object's member in a JSON file of the directory; null where either is not there.
std::optional<base::Json> member_of(const Reading& reading, const std::string& file, const char* key, About& about) {
  const auto text = reading.directory().json.find(file);
  if (text == reading.directory().json.end()) return std::nullopt;
  try {
    const base::Json document = base::Json::parse(text->second, reading.raw_path_of(file));
    const base::Json* const value = document.is_object() ? document.find(key) : nullptr;
    if (value != nullptr) return *value;
  } catch (const Error& error) {
    about.left.emplace_back(error.what());
  }
  return std::nullopt;
}

}  // namespace

void tell_of_trainer(const Reading& reading, About& about) {
  const auto version = member_of(reading, "config.json", "transformers_version", about);
  if (version && version->is_string()) about.version = "transformers " + version->text();
  const auto step = member_of(reading, "trainer_state.json", "global_step", about);
  if (step && step->is_number_unsigned()) about.step = step->whole_number();
}

}  // namespace cairn::interop
