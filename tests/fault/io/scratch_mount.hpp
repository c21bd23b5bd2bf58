// A small file system that rank 0 mounts in the test's directory, and unmounts with the object.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "comm/communicator.hpp"

namespace cairn::test {

class ScratchMount {
 public:
  /// Collective. A tmpfs of `size_bytes` in a new folder of `directory`.
  ScratchMount(comm::Communicator& communicator, const std::filesystem::path& directory, std::uint64_t size_bytes);
  /// Collective. Puts an ext4 file system into an image on the tmpfs and moves path() there. The image is made for
  /// `apparent_bytes`, more than the tmpfs has, so that writes to the page cache succeed and the fsync fails.
  void stack_lying_ext4(std::uint64_t apparent_bytes);
  ~ScratchMount();  ///< collective
  ScratchMount(const ScratchMount&) = delete;
  ScratchMount& operator=(const ScratchMount&) = delete;

  /// The reason why mounting failed (the same on all ranks); empty on success.
  [[nodiscard]] const std::string& problem() const { return problem_; }
  /// The directory to write to.
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  comm::Communicator& communicator_;
  std::filesystem::path directory_;
  std::filesystem::path path_;
  std::string problem_;
  std::vector<std::filesystem::path> mounted_;  ///< on rank 0
};

}  // namespace cairn::test
