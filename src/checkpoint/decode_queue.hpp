// What one rank has to read and decode for the boxes that it wants of a view, in batches. Rank-local.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <tuple>
#include <vector>

#include "base/bytes.hpp"
#include "checkpoint/load.hpp"
#include "codes/view.hpp"

namespace cairn::checkpoint {

/// A box that must be made of stored ones, and where it is wanted.
struct DecodeTask {
  const ViewTensor* tensor = nullptr;  ///< of a pair: either moment
  Box box;
  std::vector<std::span<std::byte>> first;   ///< memory for the first moment, or for the weight
  std::vector<std::span<std::byte>> second;  ///< memory for the second moment
};

/// A part of a task.
struct DecodePiece {
  std::size_t task = 0;
  Box box;                         ///< of moments in the coordinates of the codec's view
  std::uint64_t offset_bytes = 0;  ///< of a weight: where it lies in the task's memory
  std::size_t first_wanted = 0;    ///< its stored boxes in DecodeBatch::wanted: one per part of the pair, or one
};

/// Stored boxes to be loaded together, and what is to be made of them then.
struct DecodeBatch {
  std::vector<WantedBox> wanted;  ///< numbers of stored tensors
  std::vector<DecodePiece> pieces;
  base::Bytes memory;
};

class DecodeQueue {
 public:
  /// Throws Error(kInternal) for a box that does not fit its tensor or its memory.
  DecodeQueue(const OpenCheckpoint& checkpoint, const View& view, std::span<const WantedBox> wanted,
              std::uint64_t memory_bytes);

  /// Whether next() has nothing more to give.
  [[nodiscard]] bool is_done() const { return direct_.empty() && tasks_cut_ == tasks_.size() && pieces_.empty(); }
  /// The next batch, in the memory of the last one. The first one has all boxes that are wanted as they are stored.
  void next(DecodeBatch& batch);

  [[nodiscard]] const DecodeTask& task(std::size_t number) const { return tasks_.at(number); }

 private:
  void add(const WantedBox& want);
  void cut_next_task();
  /// What must be loaded for a piece; the memory is missing.
  [[nodiscard]] std::vector<WantedBox> stored_boxes(const DecodePiece& piece) const;
  [[nodiscard]] std::uint64_t bytes_of(const WantedBox& stored) const;

  const OpenCheckpoint& checkpoint_;
  const View& view_;
  std::uint64_t batch_bytes_;
  std::uint64_t piece_elements_;
  std::vector<WantedBox> direct_;
  std::vector<DecodeTask> tasks_;
  std::map<std::tuple<std::uint32_t, std::vector<std::uint64_t>, std::vector<std::uint64_t>>, std::size_t>
      task_of_moments_;  // by pair and box
  std::size_t tasks_cut_ = 0;
  std::vector<DecodePiece> pieces_;  // of the task cut last, its first one last
};

}  // namespace cairn::checkpoint
