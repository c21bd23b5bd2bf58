// Who may use the files that Cairn makes: their mode and group, for roots that several people share.
//
// Both are set on the descriptor that made the file or directory, before anything is in it: the fsync of a save makes
// them durable with the content. Until then nobody but the owner has access, where a mode is asked for.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace cairn::os {

struct Access {
  /// Permission bits of files; of directories too, with x where r is and the set-group-ID bit of the directory above.
  std::optional<unsigned> mode;
  std::optional<unsigned> group;  ///< its number
};

/// Throws Error(kUsage) for bits that are not permissions, a mode that keeps the owner out, a group that is unknown, and
/// one that this process may not give its files to. `group`: a name or a number; empty: none is asked for.
Access access_of(const std::optional<unsigned>& mode, const std::string& group);

/// While it lives, files and directories that this thread makes get `access`, which must outlive it. Nothing is asked
/// for: as the system does.
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
/// On this thread.
bool is_access_asked_for();
/// For open(2) or mkdir(2), which take the umask off.
unsigned mode_to_make(Made what);
/// Rank-local, after it: throws Error(kIo). Fault hooks "chown" and "chmod".
void give_access(int descriptor, const std::filesystem::path& path, Made what);

}  // namespace internal

}  // namespace cairn::os
