// Reads boxes of a view (view.hpp): what is stored as it is goes straight to its place; codes and scales, and weights of
// another dtype, are read in batches of bounded size, decoded in pieces, and copied.
//
// What is decoded does not depend on the boxes: it is equal to decoding the whole tensor and slicing. Both moments of a box
// are decoded at once when they are wanted in one load().
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "checkpoint/decode_queue.hpp"
#include "checkpoint/tensor_reader.hpp"
#include "codes/view.hpp"

namespace cairn::checkpoint {

class DecodingReader final : public TensorReader {
 public:
  /// `stored` reads the stored tensors of the same checkpoint; `memory_bytes` is for codes and decoded values.
  DecodingReader(comm::Communicator& communicator, const OpenCheckpoint& checkpoint, const View& view,
                 std::unique_ptr<TensorReader> stored, std::uint64_t memory_bytes);

  /// Collective. Boxes are numbered by the view. Throws Error(kFormat) naming the tensor for a scale that is not finite and a
  /// code that is not in use.
  void load(std::span<const WantedBox> wanted) override;
  PhaseClock& clock() override { return stored_->clock(); }  ///< with a phase "decode"
  [[nodiscard]] const EngineChoice& engine() const override { return stored_->engine(); }

 private:
  /// Rank-local; returns the bytes made.
  std::uint64_t make(const DecodeTask& task, const DecodePiece& piece, std::span<const WantedBox> loaded);
  std::uint64_t decode(const DecodeTask& task, const DecodePiece& piece, std::span<const WantedBox> loaded);

  comm::Communicator& communicator_;
  const OpenCheckpoint& checkpoint_;
  const View& view_;
  std::unique_ptr<TensorReader> stored_;
  std::uint64_t memory_bytes_;
  std::vector<float> first_;  // decoded, where they cannot be decoded in place
  std::vector<float> second_;
};

/// Collective. A reader of the view: where tensors are seen as they are stored the plain one, otherwise with half of the
/// memory budget each for reading and for decoding. `communicator`, `checkpoint`, `view` and `windows` (may be null: windows
/// of its own) must outlive it.
std::unique_ptr<TensorReader> make_view_reader(comm::Communicator& communicator, const OpenCheckpoint& checkpoint,
                                               const View& view, ReadOptions options,
                                               io::WindowStore* windows = nullptr);

}  // namespace cairn::checkpoint
