// Files that take the content of another file without a copy of its bytes.
#pragma once

#include <filesystem>

namespace cairn::os {

/// Makes the new file `to` with the content of the regular file `from`, in storage that both share until one of them is
/// written (FICLONE: XFS, Btrfs). Durable on return, except for the name. False, and there is no file, if the file
/// systems cannot do that. Throws Error(kIo) for any other failure; a file may be left then.
bool clone_file(const std::filesystem::path& from, const std::filesystem::path& to);

/// Takes the write permission of all users from the regular file `from`, and makes `to` another name of it. False, and
/// there is no `to`, if the file systems cannot do that, or this user may not. Throws as clone_file().
bool link_file(const std::filesystem::path& from, const std::filesystem::path& to);

}  // namespace cairn::os
