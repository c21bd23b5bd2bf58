#include "checkpoint/tensor_reader.hpp"

#include <utility>

#include "checkpoint/stage_reader.hpp"
#include "os/file.hpp"

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

std::string read_carried(const OpenCheckpoint& checkpoint, const std::string& name, std::uint64_t limit_bytes) {
  if (is_stage(checkpoint)) return read_carried_of_stage(checkpoint, name, limit_bytes);
  return os::read_text(checkpoint.directory / name, limit_bytes);
}

}  // namespace cairn::checkpoint
