// Mode and group of the files that Cairn makes, for roots that several users share.
//
// Both are set on the new file's or directory's descriptor before there is content, so the fsync of a save makes them
// durable with the content. If a mode is requested, only the owner has access until it is set.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace cairn::os {

struct Access {
  /// Permission bits of files. Directories also get x wherever r is set, and the parent directory's set-group-ID bit.
  std::optional<unsigned> mode;
  std::optional<unsigned> group;  ///< group ID
};

/// Throws Error(kUsage) for bits that are not permissions, a mode that denies the owner access, an unknown group, and a
/// group to which this process may not give its files. `group`: a name or a number; empty: no group is requested.
Access access_of(const std::optional<unsigned>& mode, const std::string& group);

/// During its lifetime, files and directories that this thread makes get `access`, which must outlive the scope. Unset
/// members of `access` are left to the system.
class AccessScope {
 public:
  explicit AccessScope(const Access& access);
  ~AccessScope();
  AccessScope(const AccessScope&) = delete;
  AccessScope& operator=(const AccessScope&) = delete;

 private:
  const Access* before_;
};

namespace internal {

enum class Made { kFile, kDirectory };
/// Whether this thread is in a scope that sets mode or group.
bool is_access_asked_for();
/// Mode for open(2) or mkdir(2), before the umask.
unsigned mode_to_make(Made what);
/// Rank-local. Sets the requested mode and group after creation; throws Error(kIo). Fault hooks "chown" and "chmod".
void give_access(int descriptor, const std::filesystem::path& path, Made what);

}  // namespace internal

}  // namespace cairn::os
