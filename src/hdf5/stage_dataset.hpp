// Opening a staging file and the datasets in it, with the checks that both of its readers make. Includes hdf5.h: for this
// folder only.
#pragma once

#include <string>

#include "format/stored_checkpoint.hpp"
#include "hdf5/handle.hpp"

namespace cairn::hdf5 {

/// Read-only, without locks, with a large sieve buffer for small pieces.
Handle open_stage(const Checker& check);

/// Opens the dataset at "group/link" or "group/group/link". Throws the checker's error unless all of them are hard links,
/// and Error(kFormat) unless the dataset's bytes lie contiguously in this very file.
Handle open_plain_dataset(hid_t file, const std::string& path, const Checker& check);

/// Throws the checker's error unless the dataset has the type and the shape of that tensor, and all of its bytes.
void check_dataset(hid_t dataset, const format::StoredTensor& tensor, const Checker& check);

}  // namespace cairn::hdf5
