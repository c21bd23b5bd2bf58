// A save of three files and a load of these files, for tests in which one of the two fails.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "engine_conformance.hpp"

namespace cairn::test {

/// An engine, and the number of rounds in flight in addition to the last one.
struct EngineWay {
  std::string engine = "mpiio";
  std::size_t rounds_ahead = 0;
};

class SmallSave {
 public:
  SmallSave(comm::Communicator& communicator, const std::filesystem::path& directory, std::uint64_t file_bytes,
            io::EngineOptions options = {}, const EngineWay& way = {})
      : case_{communicator, way.engine, directory, std::move(options), way.rounds_ahead},
        sizes_(3, file_bytes),
        extents_(plan::whole_files(sizes_), communicator.size(), 4096) {
    for (std::size_t f = 0; f < sizes_.size(); ++f) {
      files_.push_back({directory / ("model-" + std::to_string(f) + ".safetensors"), file_bytes});
    }
  }

  // Collective, except total_bytes().
  void save() const { write_files(case_, files_, extents_, window_bytes()); }
  [[nodiscard]] std::uint64_t load() const { return read_and_compare(case_, files_, extents_, window_bytes()); }
  [[nodiscard]] std::uint64_t total_bytes() const { return extents_.total_bytes(); }
  void remove_files() const {
    case_.communicator.barrier();
    if (case_.communicator.rank() == 0) {
      for (const io::EngineFile& file : files_) std::filesystem::remove(file.path);
    }
    case_.communicator.barrier();
  }

 private:
  [[nodiscard]] std::uint64_t window_bytes() const { return 16 * extents_.block_bytes() + sizes_[0] / 8; }

  EngineCase case_;
  std::vector<std::uint64_t> sizes_;
  plan::ExtentMap extents_;
  std::vector<io::EngineFile> files_;
};

/// The time within which a failure must reach all ranks: far below any watchdog, and enough for a slow machine.
inline constexpr std::chrono::seconds kPatience{300};

}  // namespace cairn::test
