#include "checkpoint/tensor_reader.hpp"

#include <utility>

#include "checkpoint/stage_reader.hpp"
#include "directory/open_stage.hpp"

namespace cairn::checkpoint {
namespace {

class DirectoryReader final : public TensorReader {
 public:
  DirectoryReader(comm::Communicator& communicator, const OpenCheckpoint& checkpoint, ReadOptions options,
                  io::WindowStore* windows)
      : loader_(communicator, checkpoint, std::move(options), windows != nullptr ? *windows : own_windows_) {}
  void load(std::span<const WantedBox> wanted) override { loader_.load(wanted); }
  PhaseClock& clock() override { return loader_.clock(); }
  [[nodiscard]] const EngineChoice& engine() const override { return loader_.engine(); }

 private:
  io::WindowStore own_windows_;
  Loader loader_;
};

}  // namespace

std::unique_ptr<TensorReader> make_reader(comm::Communicator& communicator, const OpenCheckpoint& checkpoint,
                                          ReadOptions options, io::WindowStore* windows) {
  if (is_stage(checkpoint)) return std::make_unique<StageReader>(communicator, checkpoint, std::move(options));
  return std::make_unique<DirectoryReader>(communicator, checkpoint, std::move(options), windows);
}

}  // namespace cairn::checkpoint
