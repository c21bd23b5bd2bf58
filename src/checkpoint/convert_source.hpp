// What a conversion takes from its source besides the tensors' bytes, whatever it is converted to.
#pragma once

#include <map>
#include <string>

#include "base/bytes.hpp"
#include "checkpoint/load.hpp"
#include "checkpoint/open.hpp"
#include "format/stored_checkpoint.hpp"
#include "plan/catalog.hpp"

namespace cairn::checkpoint {

plan::Catalog catalog_of(const format::StoredCheckpoint& stored);

/// Rank-local: file name -> content.
std::map<std::string, base::Bytes> carried_files(const OpenCheckpoint& source);

/// A conversion reads and writes: half of the budget is for reading, or the least that blocks of a common size need.
ReadOptions reading_half(const ReadOptions& options);

}  // namespace cairn::checkpoint
