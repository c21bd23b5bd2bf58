// The state that a pickle holds beside its tensors, as JSON: schedulers, trainers, random generators.
#pragma once

#include <cstddef>
#include <optional>

#include "base/json.hpp"
#include "pickle/pickle.hpp"

namespace cairn::pickle {

/// Known calls as what they stand for (python_objects.hpp).
///
/// | value | JSON |
/// |---|---|
/// | None, bool, integer up to 64 bits, finite float, text | itself; numpy's scalars as the number |
/// | longer integer; NaN and infinities | "0x..."; "nan", "inf", "-inf" |
/// | list, tuple, set | array |
/// | dict, OrderedDict | object, keys sorted; where keys are not texts and integers, or equal as texts: {"dict": [[key, value], ...]} |
/// | bytes | {"bytes": number of them, "hex": the bytes, when they were read} |
/// | numpy array | {"array": "u4", "shape": [624], "values": all in row-major order, when they were read} |
/// | other object | {"object": name}, and, where there are such, "arguments", "keywords", "state", "elements", "entries" |
/// | class or function | {"name": name} |
/// | persistent id, text that was not read | {"persistent": id}, {"text": bytes} |
///
/// Nothing when its text would have more than about `most_bytes`, is more than 100 deep, or contains itself. Texts count each
/// time: a pickle may have one in many places. Throws Error(kFormat) as array_of() does.
std::optional<base::Json> json_of(PickleValue value, std::size_t most_bytes = 256 << 10);

}  // namespace cairn::pickle
