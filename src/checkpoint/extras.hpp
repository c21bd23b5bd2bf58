// What a checkpoint holds besides its tensors: the user's metadata, carried files, the ranks' blobs.
//
// The blobs are tensors: "rank-00000", "rank-00001" ... of section rank_state, U8 of one dimension (planning/describe.hpp).
// Each rank reads those that it asks for, and carried files go through one piece at a time: no rank holds what it did not
// ask for.
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

/// Rank-local: numbers of the stored tensors that are blobs, by saving rank. Throws Error(kFormat) when the manifest says
/// that there are others.
std::vector<std::uint32_t> rank_blobs(const opening::OpenCheckpoint& opened);

/// Collective: Error(kUsage) when the kinds differ.
void agree_on_mapping(comm::Communicator& communicator, const BlobMapping& mapping);

/// Collective. Throws Error(kState) where the ranks' blobs are another number than the ranks and `mapping` does not say
/// who gets which, or names a rank that did not save.
Checkpointer::LoadedExtras read_extras(comm::Communicator& communicator, const opening::OpenCheckpoint& opened,
                                       const BlobMapping& mapping, const ReadOptions& options,
                                       io::WindowStore& windows);

/// Collective: the blob of a saving rank, which each rank names for itself; nothing for none. Throws Error(kState) for a
/// rank that did not save, kNotFound where no rank had a blob.
std::vector<std::byte> read_rank_blob(comm::Communicator& communicator, const opening::OpenCheckpoint& opened,
                                      std::optional<std::uint64_t> saving_rank, const ReadOptions& options,
                                      io::WindowStore& windows);

/// Collective: a carried file of the open checkpoint, which rank 0 has open, the others not. Throws Error(kNotFound).
/// Once it is here another checkpoint may take the place of this one.
std::optional<opening::PiecewiseFile> open_carried(comm::Communicator& communicator,
                                                   const opening::OpenCheckpoint& opened, const std::string& name);

/// Collective: gives every piece of rank 0's file to the sinks of all ranks, some of which may be empty.
void give_carried(comm::Communicator& communicator, std::optional<opening::PiecewiseFile> file,
                  const CarriedSink& sink);

}  // namespace cairn::checkpoint
