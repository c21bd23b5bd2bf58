// Reads boxes of tensors from a directory of safetensors files into memory, in any layout, with every block checked.
//
// Balanced (default): one rank reads each byte from storage once, in whole blocks, checks it against the block table,
// and sends it on. Independent: each rank reads its own bytes, by the same code on a communicator of one rank.
//
// Batches (reader.hpp) share one plan and one opening of the files, as long as the plan has room in memory
// (read_plan.hpp); windows are read ahead across batches.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "checkpoint/reader.hpp"
#include "io/window_pool.hpp"

namespace cairn::checkpoint {

class Loader final : public TensorReader {
 public:
  /// Collective. `view` null: the checkpoint as it is stored. `windows` null: separate windows. All arguments must
  /// outlive the object.
  Loader(comm::Communicator& communicator, const opening::OpenCheckpoint& checkpoint, const codes::View* view,
         ReadOptions options, io::WindowStore* windows = nullptr);
  ~Loader() override;
  /// As above, for a checkpoint in stored form.
  Loader(comm::Communicator& communicator, const opening::OpenCheckpoint& checkpoint, ReadOptions options)
      : Loader(communicator, checkpoint, nullptr, std::move(options)) {}

  void close_after_error() noexcept override;

 private:
  /// One plan and its open files.
  struct Reading;
  void begin_stored(Wanted wanted) override;
  void load_stored(std::span<const plan::MemoryBox> wanted, Call& call) override;
  void begin_reading(Call& call);
  void read_batch(std::uint64_t batch, std::span<const plan::MemoryBox> wanted, Call& call);

  io::WindowStore own_windows_;
  io::WindowStore& windows_;
  Wanted stored_;
  std::uint64_t next_stored_ = 0;     ///< number of the next stored batch
  std::uint64_t planned_end_ = 0;     ///< end of the planned batches
  std::unique_ptr<Reading> reading_;  ///< plan and files of these batches; null if no rank wants a byte
};

}  // namespace cairn::checkpoint
