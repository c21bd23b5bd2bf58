// Determines, in batches, the stored boxes that one rank must read to get the boxes that it wants from a view, and
// decodes them. Rank-local.
//
// Decoded values do not depend on the boxes: they equal a slice of the whole decoded tensor. Boxes that are stored in
// the wanted form are passed through.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <tuple>
#include <vector>

#include "base/bytes.hpp"
#include "codes/decode_pieces.hpp"
#include "codes/view.hpp"
#include "io/device_copies.hpp"
#include "plan/runs.hpp"

namespace cairn::codes {

/// A wanted box that must be made from stored boxes.
struct DecodeTask {
  const ViewTensor* tensor = nullptr;  ///< for a pair, either moment
  Box box;
  std::vector<plan::MemoryBox> first;   ///< destinations of the first moment, or of another tensor
  std::vector<plan::MemoryBox> second;  ///< destinations of the second moment
};

/// A part of a task.
struct DecodePiece {
  std::size_t task = 0;
  Box box;                       ///< for moments, in the coordinates of the codec's view
  std::size_t first_wanted = 0;  ///< index of the piece's first stored box in the batch; moments have a box per part
  std::uint64_t scales = 0;      ///< for moments with interop::ScaledBox: ScaledBox::scales
};

class Decoder {
 public:
  /// kPlanning: finish_batch() must not be called. Wanted boxes need no memory yet, and stored boxes get none.
  enum class Purpose { kDecoding, kPlanning };

  /// `memory_bytes` is for codes and decoded values; `device` copies decoded values to device memory.
  /// References must outlive the object. Throws Error(kInternal) for a box that does not fit its tensor or its memory.
  Decoder(const opening::OpenCheckpoint& checkpoint, const View& view, std::span<const plan::MemoryBox> wanted,
          std::uint64_t memory_bytes, io::DeviceCopies& device, Purpose purpose = Purpose::kDecoding);

  /// The stored boxes to load next, valid until the next call; they reuse the memory of the previous boxes. The first
  /// batch has all boxes that can be read into their place. Equal wanted boxes give equal batches.
  std::span<const plan::MemoryBox> next_batch();
  /// Makes the wanted values from the loaded batch. Returns the number of bytes made. Throws Error(kFormat) naming the
  /// tensor for a scale that is not finite or an unused code, Error(kIo) if a device refuses a copy.
  std::uint64_t finish_batch();
  /// Whether next_batch() has returned all batches.
  [[nodiscard]] bool is_done() const { return direct_.empty() && tasks_cut_ == tasks_.size() && pieces_.empty(); }

 private:
  void add(const plan::MemoryBox& want);
  /// `want` is a box of `tensor`, but `want.tensor` is the number of the wanted tensor of the view.
  void add(const ViewTensor& tensor, plan::MemoryBox want);
  void cut_next_task();
  /// The boxes to load for a piece, still without memory.
  [[nodiscard]] std::vector<plan::MemoryBox> stored_boxes(const DecodePiece& piece) const;
  [[nodiscard]] std::uint64_t bytes_of(const plan::MemoryBox& stored) const;
  /// make() and decode() return the number of bytes made.
  std::uint64_t make(const DecodePiece& piece, std::span<const plan::MemoryBox> loaded);
  std::uint64_t decode(const DecodePiece& piece, std::span<const plan::MemoryBox> loaded);
  [[nodiscard]] bool is_copy(const ViewTensor& tensor, const plan::MemoryBox& want) const;
  [[nodiscard]] DType wanted_dtype(const plan::MemoryBox& want) const { return view_.at(want.tensor).dtype; }
  void cast(std::span<const std::byte> values, DType from, DType to, std::span<std::byte> out);
  std::span<const std::byte> converted(std::span<const std::byte> values, DType from, DType to);
  /// Values for a destination: boxes whose values lie end to end, and their runs in the destination.
  struct Made {
    std::span<const std::byte> values;
    DType dtype;
    std::span<const Box> boxes;
    std::span<const plan::Run> runs;  ///< runs_of_boxes() in the dtype of the destination
  };
  void put(const Made& made, const plan::MemoryBox& place);
  void put_runs(const Made& made, const plan::MemoryBox& place);

  const opening::OpenCheckpoint& checkpoint_;
  const View& view_;
  io::DeviceCopies& device_;
  Purpose purpose_;
  std::uint64_t memory_bytes_;
  std::uint64_t piece_elements_;
  std::vector<plan::MemoryBox> direct_;
  std::vector<DecodeTask> tasks_;
  std::map<std::tuple<std::uint32_t, std::vector<std::uint64_t>, std::vector<std::uint64_t>>, std::size_t>
      task_of_moments_;  // by pair and box
  std::size_t tasks_cut_ = 0;
  std::vector<DecodePiece> pieces_;  // pieces of the last task that was cut, in reverse order

  std::vector<plan::MemoryBox> loading_;  // stored boxes of the batch
  std::vector<DecodePiece> batch_;        // pieces to make from them
  base::Bytes memory_;                    // memory for boxes that are not loaded into their place
  std::vector<float> first_, second_;     // decoded values that cannot be decoded in place
  base::Bytes converted_;                 // values in the target's dtype, before a copy to a device or a change of the
                                          // dimensions' order
  base::Bytes turned_;                    // values in the target's order of dimensions, before a copy to a device
};

}  // namespace cairn::codes
