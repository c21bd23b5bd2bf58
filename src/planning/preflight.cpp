#include "planning/preflight.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cerrno>

#include "base/text.hpp"
#include "os/file.hpp"
#include "os/system_calls.hpp"

namespace cairn::planning {
namespace {

constexpr const char* kMakeRoom = "make room, let older checkpoints go (cairn prune, Retention::prune_before)";

std::string size_words(std::uint64_t bytes) {
  return fmt::format("{} ({} bytes)", base::format_size(bytes), base::group_digits(bytes));
}

Obstacle make_obstacle(int error, const std::string& words) {
  return {error, fmt::format("{}: {}", os::error_text(error), words)};
}

Obstacle want_of_bytes(int error, const SaveNeeds& needs, std::uint64_t left, const std::string& whose) {
  Obstacle found =
      make_obstacle(error, fmt::format("the save needs {}, and {} {} left: {} too few; {}", size_words(needs.bytes),
                                       whose, size_words(left), size_words(needs.bytes - left), kMakeRoom));
  found.is_want_of_room = true;
  return found;
}

Obstacle want_of_files(int error, const SaveNeeds& needs, std::uint64_t left, const std::string& whose) {
  Obstacle found = make_obstacle(
      error, fmt::format("the save makes {} files and directories, and {} {} left (inodes): {} too few; {}",
                         base::group_digits(needs.files), whose, base::group_digits(left),
                         base::group_digits(needs.files - left), kMakeRoom));
  found.is_want_of_room = true;
  return found;
}

}  // namespace

std::optional<Obstacle> want_of_room(const SaveNeeds& needs, const os::StorageFacts& facts,
                                     const std::filesystem::path& directory) {
  const std::string where = os::shown(directory);
  if (facts.largest_file_bytes && needs.largest_file_bytes > *facts.largest_file_bytes) {
    return make_obstacle(EFBIG, fmt::format("'{}' would have {}, and files of {} at '{}' have at most {}; make "
                                            "Options::files.max_bytes smaller, or choose another file system",
                                            base::printable(needs.largest_file), size_words(needs.largest_file_bytes),
                                            facts.type, where, size_words(*facts.largest_file_bytes)));
  }
  for (const os::QuotaLeft& quota : facts.quotas) {
    const std::string whose = fmt::format("the quota of {} at '{}' has", quota.of, where);
    if (quota.bytes && needs.bytes > *quota.bytes) return want_of_bytes(EDQUOT, needs, *quota.bytes, whose);
    if (quota.files && needs.files > *quota.files) return want_of_files(EDQUOT, needs, *quota.files, whose);
  }
  const std::string whose = fmt::format("{} at '{}' has", facts.type, where);
  const bool is_exact = os::tells_space_exactly(facts);
  std::optional<Obstacle> found;
  if (facts.free_bytes && needs.bytes > *facts.free_bytes) {
    found = want_of_bytes(ENOSPC, needs, *facts.free_bytes, whose);
  } else if (facts.free_files && needs.files > *facts.free_files) {
    found = want_of_files(ENOSPC, needs, *facts.free_files, whose);
  }
  if (found) found->is_certain = is_exact;
  return found;
}

std::optional<Obstacle> want_of_size(const std::string& largest_file, std::uint64_t bytes,
                                     const std::optional<std::uint64_t>& limit_bytes) {
  if (!limit_bytes || bytes <= *limit_bytes) return std::nullopt;
  return make_obstacle(
      EFBIG,
      fmt::format("'{}' would have {} bytes; files of this process may have {} bytes: raise the limit (ulimit -f) "
                  "before it starts, or make Options::files.max_bytes smaller",
                  base::printable(largest_file), bytes, *limit_bytes));
}

StripeAdvice advise_on_stripes(const std::optional<os::Striping>& stripes) {
  if (!stripes) return {"the directory's stripes are unknown, or grow with the file (progressive layout)", ""};
  const std::string set =
      "lfs setstripe -c 8 -S 16M DIRECTORY before the first save, or --hint striping_factor=8 "
      "(Options::engine.hints)";
  if (stripes->count == 0) {
    return {
        "this directory has no stripe_count of its own, and the file system's is 1 unless it was changed: each file "
        "is on one OST",
        set};
  }
  if (stripes->count == 1) return {"this directory has stripe_count 1: each file is on one OST", set};
  const bool is_all = stripes->count == os::Striping::kAllTargets;
  std::string finding =
      is_all ? "this directory has stripe_count -1: each file is on all OSTs"
             : fmt::format("this directory has stripe_count {}: each file is on as many OSTs", stripes->count);
  if (stripes->unit_bytes != 0) finding += fmt::format(", in stripes of {}", base::format_size(stripes->unit_bytes));
  return {std::move(finding), ""};
}

}  // namespace cairn::planning
