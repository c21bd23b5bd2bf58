// The state in a pickle, except for tensors, as JSON: schedulers, trainers, random generators.
#pragma once

#include <cstddef>
#include <optional>

#include "base/json.hpp"
#include "pickle/pickle.hpp"

namespace cairn::pickle {

/// The value as JSON. Calls with a known meaning are replaced by their result (python_objects.hpp).
///
/// | value | JSON |
/// |---|---|
/// | None, bool, integer up to 64 bits, finite float, text | itself; numpy's scalars as the number |
/// | longer integer; NaN and infinities | "0x..."; "nan", "inf", "-inf" |
/// | list, tuple, set | array |
/// | dict, OrderedDict | object with sorted keys; {"dict": [[key, value], ...]} if a key is neither a string nor |
/// | | an integer, or if two keys are equal as strings |
/// | bytes | {"bytes": their number, "hex": the bytes, if they were read} |
/// | numpy array | {"array": "u4", "shape": [624], "values": all, if row-major, read, and bools, integers, f4 or f8} |
/// | other object | {"object": name}, with "arguments", "keywords", "state", "elements", "entries" if it has them |
/// | class or function | {"name": name} |
/// | persistent id, text that was not read | {"persistent": id}, {"text": number of bytes} |
///
/// Nothing if the JSON would have more than about `most_bytes`, or if the value is nested more than 100 deep or
/// contains itself. A shared string counts each time it occurs. Throws Error(kFormat) as dict_of() and array_of() do.
std::optional<base::Json> json_of(PickleValue value, std::size_t most_bytes = 256 << 10);

}  // namespace cairn::pickle
