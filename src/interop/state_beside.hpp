// Facts from small JSON files, common to several dialects.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "interop/reading.hpp"

namespace cairn::interop {

/// Takes the version of the writer from transformers' config.json, and the step from a trainer's trainer_state.json. An
/// invalid file is only named in About::left, since nothing depends on it.
void tell_of_trainer(const Reading& reading, About& about);

/// Takes the version of `program`, which wrote config.json, from the value at `key`. Keeps the known version if the key
/// is missing.
void tell_of_version(const Reading& reading, const char* key, std::string_view program, About& about);

/// A whole number at `key` of config.json or, if the key is missing there, of its text_config; nothing if config.json
/// is missing, cannot be read or does not have it.
std::optional<std::uint64_t> number_in_config(const Reading& reading, std::string_view key);

/// Takes the form of quantised weights from transformers' config.json ("gptq, 4 bits").
/// The weights' codes are loaded as plain tensors; a line in About::left says that the weights are not decoded.
void tell_of_quantised_weights(const Reading& reading, About& about);

}  // namespace cairn::interop
