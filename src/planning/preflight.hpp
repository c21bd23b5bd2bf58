// Decides from facts about the storage whether a save can succeed, before its first byte. Pure: no call looks at files.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "os/storage.hpp"

namespace cairn::planning {

/// The needs of a save, in figures that are below the truth rather than above.
struct SaveNeeds {
  std::uint64_t bytes = 0;  ///< of all files, small ones included
  std::uint64_t files = 0;  ///< files and directories
  std::uint64_t largest_file_bytes = 0;
  std::string largest_file;
};

/// A reason why a save cannot succeed.
struct Obstacle {
  int error = 0;                 ///< errno that the save would meet
  std::string text;              ///< one line: what is missing, with figures, and what to do
  bool is_want_of_room = false;  ///< removing files helps
  bool is_certain = true;        ///< false: the file system may store more than it says
};

/// Against space, inodes, quotas and the largest file of the file system. A certain obstacle comes before an uncertain
/// one.
std::optional<Obstacle> want_of_room(const SaveNeeds& needs, const os::StorageFacts& facts,
                                     const std::filesystem::path& directory);

/// Against the limit of file sizes of a process (ulimit -f), nothing: no limit.
std::optional<Obstacle> want_of_size(const std::string& largest_file, std::uint64_t bytes,
                                     const std::optional<std::uint64_t>& limit_bytes);

/// Advice on the stripes of a Lustre directory; an empty remedy: nothing to do.
struct StripeAdvice {
  std::string finding;
  std::string remedy;
};
StripeAdvice advise_on_stripes(const std::optional<os::Striping>& stripes);

}  // namespace cairn::planning
