#include "interop/state_beside.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <optional>

#include "base/json.hpp"
#include "base/text.hpp"
#include "interop/file_names.hpp"

namespace cairn::interop {
namespace {

constexpr std::uint64_t kMostMemoryBytes = 16 << 20;  // limit for one member

void leave(const std::string& line, About& about) {
  if (std::ranges::find(about.left, line) == about.left.end()) about.left.push_back(line);
}

/// A member of the object in a JSON file of the directory; nothing if the file cannot be read or lacks the member.
std::optional<base::Json> member_of(const Reading& reading, const std::string& file, std::string_view key,
                                    About& about) {
  const auto text = reading.directory().json.find(file);
  if (text == reading.directory().json.end()) {
    if (reading.directory().others.contains(file)) {
      leave(fmt::format("what {} says: it has more than the {} that are looked into", file,
                        base::format_size(most_text_bytes(file))),
            about);
    }
    return std::nullopt;
  }
  try {
    const base::JsonOptions options{
        .dialect = base::JsonDialect::kPython, .memory_bytes = kMostMemoryBytes, .members = {&key, 1}};
    const base::Json document = base::Json::parse(text->second, reading.raw_path_of(file), options);
    const base::Json* const value = document.is_object() ? document.find(key) : nullptr;
    if (value != nullptr) return *value;
  } catch (const Error& error) {
    leave(fmt::format("what {} says, though the file itself is carried as it is: {}", file, error.what()), about);
  }
  return std::nullopt;
}

}  // namespace

void tell_of_trainer(const Reading& reading, About& about) {
  tell_of_version(reading, "transformers_version", "transformers", about);
  const auto step = member_of(reading, "trainer_state.json", "global_step", about);
  if (step && step->is_number_unsigned()) about.step = step->whole_number();
}

void tell_of_version(const Reading& reading, const char* key, std::string_view program, About& about) {
  const auto version = member_of(reading, "config.json", key, about);
  if (version && version->is_string()) about.version = fmt::format("{} {}", program, version->text());
}

std::optional<std::uint64_t> number_in_config(const Reading& reading, std::string_view key) {
  About unused;  // the same faults are told by tell_of_trainer()
  const auto whole = [](const base::Json* value) {
    return value != nullptr && value->is_number_unsigned() ? std::optional(value->whole_number()) : std::nullopt;
  };
  if (const auto value = member_of(reading, "config.json", key, unused)) return whole(&*value);
  const auto text = member_of(reading, "config.json", "text_config", unused);
  return text && text->is_object() ? whole(text->find(key)) : std::nullopt;
}

void tell_of_quantised_weights(const Reading& reading, About& about) {
  const auto config = member_of(reading, "config.json", "quantization_config", about);
  if (!config || !config->is_object()) return;
  const base::Json* const method = config->find("quant_method");
  if (method == nullptr || !method->is_string()) return;
  about.quantisation = method->text();
  const base::Json* const bits = config->find("bits");
  if (bits != nullptr && bits->is_number_unsigned())
    about.quantisation += fmt::format(", {} bits", bits->whole_number());
  about.left.push_back(fmt::format(
      "decoded weights: those that config.json says are quantised ({}) stay the codes and scales that are stored",
      base::printable(about.quantisation)));
}

}  // namespace cairn::interop
