// The content of a checkpoint apart from the saved state: the user's metadata, carried files, the ranks' blobs.
//
// The blobs are tensors: "rank-00000", "rank-00001" ... of section rank_state, U8 with one dimension
// (planning/describe.hpp). Each rank gets only the blobs that it requests; carried files are passed on piece by piece.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cairn/checkpoint.hpp"
#include "checkpoint/reader.hpp"
#include "comm/communicator.hpp"
#include "io/window_pool.hpp"
#include "opening/carried.hpp"
#include "opening/open.hpp"

namespace cairn::checkpoint {

/// Rank-local: numbers of the stored tensors that are blobs, by saving rank. Throws Error(kFormat) if the manifest
/// names some number of blobs, and there is a different number.
std::vector<std::uint32_t> rank_blobs(const opening::OpenCheckpoint& opened);

/// Collective: throws Error(kUsage) if the kind of mapping differs between ranks.
void agree_on_mapping(comm::Communicator& communicator, const BlobMapping& mapping);

/// Collective. If there are blobs, throws Error(kState) if their number is not the number of ranks and `mapping` does
/// not assign them, or if `mapping` names a rank that did not save.
Checkpointer::LoadedExtras read_extras(comm::Communicator& communicator, const opening::OpenCheckpoint& opened,
                                       const BlobMapping& mapping, const ReadOptions& options,
                                       io::WindowStore& windows);

/// Collective: the blob of `saving_rank`, which may differ between ranks; no bytes if `saving_rank` is empty. Throws
/// Error(kState) for a rank that did not save, and kNotFound if the checkpoint has no blobs.
std::vector<std::byte> read_rank_blob(comm::Communicator& communicator, const opening::OpenCheckpoint& opened,
                                      std::optional<std::uint64_t> saving_rank, const ReadOptions& options,
                                      io::WindowStore& windows);

/// Collective: opens a carried file of the checkpoint, on rank 0 only. Throws Error(kNotFound) if there is no such
/// file, and kIo if the checkpoint was replaced during the call. A later replacement does not affect the open file.
std::optional<opening::PiecewiseFile> open_carried(comm::Communicator& communicator,
                                                   const opening::OpenCheckpoint& opened, const std::string& name);

/// Collective: gives every piece of rank 0's file to the sink of each rank; a sink may be empty.
void give_carried(comm::Communicator& communicator, std::optional<opening::PiecewiseFile> file,
                  const CarriedSink& sink);

}  // namespace cairn::checkpoint
