#include "checkpoint/tensor_reader.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "base/bytes.hpp"
#include "base/units.hpp"
#include "cairn/error.hpp"
#include "checkpoint/stage_reader.hpp"
#include "format/crc32c.hpp"
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
  const std::filesystem::path path = checkpoint.directory / name;
  std::string text = os::read_text(path, limit_bytes);
  if (!checkpoint.manifest) return text;
  const auto& listed = checkpoint.manifest->carried_files;
  const auto at = std::ranges::find(listed, name, &format::ManifestFile::name);
  if (at == listed.end()) return text;  // put there later, by people
  const std::uint32_t found = format::crc32c(base::as_bytes(text));
  if (found == at->crc32c) return text;
  throw Error(ErrorKind::kIntegrity,
              fmt::format("'{}' has checksum {:08x}, {:08x} was written: the file was damaged or changed since",
                          base::printable(path.string()), found, at->crc32c));
}

}  // namespace cairn::checkpoint
