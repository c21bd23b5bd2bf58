// Finds moments that Cairn stored as codes and scales, from the data files' metadata (format/stored_checkpoint.hpp).
#pragma once

#include "interop/reading.hpp"

namespace cairn::interop {

/// Whether the metadata has an entry about coded moments.
bool has_codings(const format::SafetensorsHeader& header);

/// Adds to `quantised` the moments that the files' metadata marks as coded, and sorts it. Throws Error(kFormat), naming
/// file and tensor, for an unreadable entry, an unknown codec, a part that is missing or has the wrong dtype or shape,
/// or a moment that is also stored uncoded or is coded twice.
void add_codings(Recognised& recognised, const Reading& reading);

}  // namespace cairn::interop
