// A small file system of the test's own, mounted by rank 0 in the test's directory and unmounted with the object.
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
  /// Collective. Puts an ext4 file system in an image on the tmpfs and goes there: it believes to have
  /// `apparent_bytes`, so that writes to the page cache succeed, and the fsync fails.
  void stack_lying_ext4(std::uint64_t apparent_bytes);
  ~ScratchMount();  ///< collective
  ScratchMount(const ScratchMount&) = delete;
  ScratchMount& operator=(const ScratchMount&) = delete;

  /// Why mounting was not possible (the same on all ranks); empty when it was.
  [[nodiscard]] const std::string& problem() const { return problem_; }
  /// Where to write.
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  comm::Communicator& communicator_;
  std::filesystem::path directory_;
  std::filesystem::path path_;
  std::string problem_;
  std::vector<std::filesystem::path> mounted_;  ///< on rank 0
};

}  // namespace cairn::test
