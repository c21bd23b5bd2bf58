// Transfers: runs that travel between one rank's memory and another rank's extents.
//
// Transfers serve a save (memory to extents) and a load (extents to memory). A transfer is a Runs object with both
// ranks, made by the rank that has the memory. Both ends enumerate its bytes, clipped to a window, in the same order,
// so data messages do not describe them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/bytes.hpp"
#include "cairn/box.hpp"
#include "format/stored_checkpoint.hpp"
#include "plan/extents.hpp"
#include "plan/pieces.hpp"
#include "plan/runs.hpp"

namespace cairn::plan {

/// The stored boxes of one tensor, ordered so that the boxes that overlap a given box are found without trying all.
///
/// Boxes are sorted along the dimension in which they have the most distinct offsets, and each position has the largest
/// end so far, so the candidates are one stretch of the list. For a tensor cut along one dimension, all candidates
/// overlap the given box.
class BoxIndex {
 public:
  BoxIndex() = default;
  /// `boxes` must outlive the index and have the same number of dimensions.
  explicit BoxIndex(std::span<const format::StoredBox> boxes);

  /// Calls `visit` with the number of each box that has elements in common with `box`, and with the common elements.
  void for_each_meeting(const Box& box, const std::function<void(std::uint32_t, const Box&)>& visit) const;

 private:
  std::span<const format::StoredBox> boxes_;
  std::size_t dimension_ = 0;
  std::vector<std::uint32_t> order_;
  std::vector<std::uint64_t> largest_end_;  ///< largest end of the boxes of order_ up to and including this position
};

/// Bytes outside all extents cause Error(kInternal), or are not transferred.
enum class OutsideExtents { kIsError, kStays };

/// Transfers between this rank's memory and every rank's extents: pieces x stored boxes, split by aggregator. A region
/// that overlaps the extents of k ranks gives k Runs, equal but for file_rank, which windows clip. Piece::tensor is an
/// index into stored.tensors, Piece::local into `memory`. Ascending by (file_rank, file, file_begin, local,
/// memory_begin). Costs a sort of the pieces and of their tensors' stored boxes, searches, and the output.
std::vector<Runs> transfers_of_memory(std::span<const Piece> pieces, std::span<const MemoryBox> memory,
                                      const format::StoredCheckpoint& stored, const ExtentMap& extents,
                                      OutsideExtents outside = OutsideExtents::kIsError);

/// Sorts the joined results of several calls of transfers_of_memory() into the order of a single result.
void sort_transfers(std::vector<Runs>& transfers);

/// The runs of transfers_of_memory() before the split by aggregator; file_rank is 0.
std::vector<Runs> regions_of_memory(std::span<const Piece> pieces, std::span<const MemoryBox> memory,
                                    const format::StoredCheckpoint& stored);

/// Throws Error(kInternal) for runs that runs_of() never makes: no bytes, levels that do not add up, runs that overlap,
/// offsets that do not fit in 64 bits. Runs that pass can be clipped to windows without further checks.
void check_runs(const Runs& runs);

/// For example: "8192 bytes from memory of rank 1 to extents of rank 0".
std::string to_string(const Runs& runs);

/// Runs on the wire: kWireBytes, plus kWireLevelBytes for each level. `file_rank` is the receiver. parse_runs() calls
/// check_runs() on each.
inline constexpr std::size_t kWireBytes = 48;
inline constexpr std::size_t kWireLevelBytes = 24;
void append_runs(base::Bytes& out, const Runs& runs);
std::vector<Runs> parse_runs(std::span<const std::byte> bytes, int file_rank);

}  // namespace cairn::plan
