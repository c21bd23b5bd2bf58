// What small JSON files beside the data tell, which several dialects write alike.
#pragma once

#include <string_view>

#include "interop/reading.hpp"

namespace cairn::interop {

/// Takes from transformers' config.json the version that wrote it, and from a trainer's trainer_state.json the step. A
/// file that is not what it should be is named in About::left, since nothing depends on it.
void tell_of_trainer(const Reading& reading, About& about);

/// Takes from config.json the version of what wrote it: "PaddleNLP 3.0.0b4" for the key "paddlenlp_version". Leaves what is
/// known where it has none.
void tell_of_version(const Reading& reading, const char* key, std::string_view program, About& about);

/// Takes from transformers' config.json in which form weights are quantised ("gptq, 4 bits"). Their codes are tensors
/// like any other, and that nothing decodes them is said in About::left.
void tell_of_quantised_weights(const Reading& reading, About& about);

}  // namespace cairn::interop
