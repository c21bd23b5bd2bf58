// A transfer: one region that travels between the rank whose memory holds it and the rank whose extents it lies in.
//
// The same record serves a save (memory to extents) and a load (extents to memory). Both ends enumerate the bytes of a
// transfer, clipped to a window, in the same row-major order, so data messages carry no descriptions.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/bytes.hpp"
#include "cairn/box.hpp"
#include "format/stored_checkpoint.hpp"
#include "plan/extents.hpp"
#include "plan/runs.hpp"

namespace cairn::plan {

struct Transfer {
  int memory_rank = 0;       ///< whose memory
  int extent_rank = 0;       ///< whose extents
  std::uint32_t tensor = 0;  ///< index into the stored checkpoint
  std::uint32_t stored = 0;  ///< which stored box of the tensor
  std::uint32_t local = 0;   ///< which memory box in the memory rank's own list
  Box memory_box;            ///< that box
  Box region;                ///< what travels: inside both boxes

  friend bool operator==(const Transfer&, const Transfer&) = default;
};

/// A part of this rank's memory: `part` of the local memory box number `local`, which is `memory_box` of `tensor`.
struct MemoryPart {
  std::uint32_t tensor = 0;
  std::uint32_t local = 0;
  Box memory_box;
  Box part;
};

/// Transfers between this rank's memory and every rank's extents: parts x stored boxes, split by extent owner (a region
/// that meets the extents of k ranks gives k transfers with the same region; windows clip them). Ascending by
/// (extent_rank, tensor, stored, local, region). Cost: proportional to the output. Bytes in no extent
/// are Error(kInternal), or do not travel.
enum class OutsideExtents { kIsError, kStays };
std::vector<Transfer> transfers_of_memory(int rank, std::span<const MemoryPart> parts,
                                          const format::StoredCheckpoint& stored, const ExtentMap& extents,
                                          OutsideExtents outside = OutsideExtents::kIsError);

/// The same regions, each once: extent_rank is 0.
std::vector<Transfer> regions_of_memory(int rank, std::span<const MemoryPart> parts,
                                        const format::StoredCheckpoint& stored);

RunSpace run_space(const Transfer& transfer, const format::StoredCheckpoint& stored);

/// Fixed-size record (kTransferRecordBytes) for the wire; at most kMaxRecordRank dimensions, Error(kUsage) above.
inline constexpr std::size_t kMaxRecordRank = 8;
inline constexpr std::size_t kTransferRecordBytes = 24 + 2 * 2 * 8 * kMaxRecordRank;
void append_record(base::Bytes& out, const Transfer& transfer);
std::vector<Transfer> parse_records(std::span<const std::byte> records);

}  // namespace cairn::plan
