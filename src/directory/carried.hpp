// The small files of a checkpoint beside its data: configurations, tokenizers, per-run notes.
#pragma once

#include <cstdint>
#include <string>

#include "base/byte_stream.hpp"
#include "directory/open.hpp"

namespace cairn::checkpoint {

/// Rank-local: one of checkpoint.carried. Throws Error(kFormat) when it is larger than `limit_bytes`.
std::string read_carried(const OpenCheckpoint& checkpoint, const std::string& name, std::uint64_t limit_bytes);

/// Rank-local: the same in pieces, of any size, compared with the checksum that it was written with, where there is one,
/// after the last piece. `checkpoint` must outlive it.
base::ByteStream carried_stream(const OpenCheckpoint& checkpoint, const std::string& name);

}  // namespace cairn::checkpoint
