// Files made, sized, reserved, synced and checked by POSIX calls, without MPI-IO.
//
// What the engines `direct` and `posix` (direct_engine.hpp) have in common. Errors keep their errno.
#pragma once

#include <span>
#include <vector>

#include "comm/communicator.hpp"
#include "io/engine.hpp"
#include "os/file.hpp"
#include "os/striping.hpp"

namespace cairn::io {

class PosixEngine : public Engine {
 public:
  PosixEngine(comm::Communicator& communicator, const EngineOptions& options)
      : communicator_(communicator),
        reserve_space_(options.reserve_space),
        striping_(os::striping_of_hints(options.hints)) {}

  void open_for_write(std::vector<EngineFile> files, const plan::ExtentMap& extents) override;
  void open_for_read(std::vector<EngineFile> files, const plan::ExtentMap& extents) override;
  void sync() override;
  void close() override;

 protected:
  /// Place of the file among this rank's files. Throws Error(kInternal) for a file of others.
  [[nodiscard]] std::size_t place_of(std::uint32_t file) const;
  [[nodiscard]] comm::Communicator& communicator() { return communicator_; }
  [[nodiscard]] std::span<const EngineFile> files() const { return files_; }
  [[nodiscard]] std::span<const std::uint32_t> my_files() const { return mine_; }
  /// Whether the files that are written lie in memory.
  [[nodiscard]] bool writes_to_memory() const { return writes_to_memory_; }
  [[nodiscard]] os::File& descriptor(std::size_t place) { return descriptors_[place]; }

 private:
  void begin(std::vector<EngineFile> files, const plan::ExtentMap& extents);
  void look_at_storage();

  comm::Communicator& communicator_;
  bool reserve_space_;
  bool writes_to_memory_ = false;
  os::Striping striping_;
  std::vector<EngineFile> files_;
  std::vector<std::uint32_t> kept_;    ///< files that this rank creates and checks
  std::vector<std::uint32_t> mine_;    ///< files with extents of this rank, ascending
  std::vector<os::File> descriptors_;  ///< of mine_
};

}  // namespace cairn::io
