// Reads boxes of tensors from a directory of safetensors files into memory, in any layout.
//
// One rank reads a wanted block from storage, checks it against the block table, if there is one, and sends its bytes
// to the ranks that want them. In a file system in memory, long runs bypass this path (io/bypass_runs.hpp).
//
// Batches (reader.hpp) share one plan and one opening of the files, as long as the plan has room in memory
// (read_plan.hpp); windows are read ahead across the batches of a plan.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "checkpoint/reader.hpp"
#include "io/window_pool.hpp"

namespace cairn::checkpoint {

class Loader final : public TensorReader {
 public:
  /// Collective. `view`: null for the checkpoint as it is stored. `windows`: null for separate windows. References and
  /// pointers must outlive the object.
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
  std::uint64_t planned_end_ = 0;     ///< one past the last planned batch
  std::unique_ptr<Reading> reading_;  ///< plan and files of the planned batches; null if no rank wants a byte
};

}  // namespace cairn::checkpoint
