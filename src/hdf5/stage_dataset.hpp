// Opening a staging file and the datasets in it, with the checks that both of its readers make. Includes hdf5.h: for this
// folder only.
#pragma once

#include <cstdint>

#include "format/stored_checkpoint.hpp"
#include "hdf5/handle.hpp"

namespace cairn::hdf5 {

/// Read-only, without locks, with a large sieve buffer for small pieces.
Handle open_stage(const Checker& check);

/// Opens the dataset `link` of `group`. Throws the checker's error unless it is a hard link to a dataset whose bytes lie
/// contiguously in this very file.
Handle open_plain_dataset(hid_t group, const char* link, const Checker& check);

/// Throws the checker's error unless the dataset has the type and the shape of that tensor, and all of its bytes.
void check_dataset(hid_t dataset, const format::StoredTensor& tensor, const Checker& check);

}  // namespace cairn::hdf5
