// Reads boxes of tensors from a directory of safetensors files into memory, in any layout, with every block checked.
//
// Balanced (default): each byte is read from storage once by one rank, in whole blocks, checked against the block
// table, and exchanged. Independent: each rank reads what it wants, by the same code on a communicator of itself.
#pragma once

#include <span>

#include "checkpoint/reader.hpp"
#include "io/window_pool.hpp"

namespace cairn::checkpoint {

class Loader final : public TensorReader {
 public:
  /// Collective. `view` may be null: the checkpoint as it is stored; so may `windows`: windows of its own. All must
  /// outlive the object.
  Loader(comm::Communicator& communicator, const OpenCheckpoint& checkpoint, const View* view, ReadOptions options,
         io::WindowStore* windows = nullptr);
  /// Of the checkpoint as it is stored.
  Loader(comm::Communicator& communicator, const OpenCheckpoint& checkpoint, ReadOptions options)
      : Loader(communicator, checkpoint, nullptr, std::move(options)) {}

 private:
  void load_stored(std::span<const plan::MemoryBox> wanted, Call& call) override;

  io::WindowStore own_windows_;
  io::WindowStore& windows_;
};

}  // namespace cairn::checkpoint
