// Directories, renames, removal.
#include <dirent.h>
#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <memory>
#include <optional>
#include <string_view>
#include <system_error>

#include "base/text.hpp"
#include "os/access.hpp"
#include "os/file.hpp"
#include "os/system_calls.hpp"

namespace cairn::os {
namespace {

struct CloseDirectory {
  void operator()(DIR* directory) const { ::closedir(directory); }
};
using DirectoryHandle = std::unique_ptr<DIR, CloseDirectory>;

/// The device and inode behind a path, to recognise the same object under another path.
class Identity {
 public:
  explicit Identity(const std::filesystem::path& path)
      : is_known_(call_again([&] { return ::lstat(path.c_str(), &status_); }) == 0) {}

  [[nodiscard]] bool is_known() const { return is_known_; }
  [[nodiscard]] bool is_directory() const { return is_known_ && S_ISDIR(status_.st_mode); }
  /// Whether `path` names the same object now.
  [[nodiscard]] bool has(const std::filesystem::path& path) const {
    const Identity there(path);
    return is_known_ && there.is_known_ && there.status_.st_dev == status_.st_dev &&
           there.status_.st_ino == status_.st_ino;
  }

 private:
  struct stat status_ {};
  bool is_known_;
};

/// Opens a directory; null with errno set on failure, like opendir. `extra_flags`: O_NOFOLLOW or 0.
DirectoryHandle open_directory(int parent, const char* name, int extra_flags) {
  int descriptor = -1;
  call_again([&] { return descriptor = ::openat(parent, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | extra_flags); });
  if (descriptor < 0) return nullptr;
  DIR* directory = ::fdopendir(descriptor);
  if (directory == nullptr) ::close(descriptor);
  return DirectoryHandle(directory);
}

std::vector<std::string> names_in(DIR* directory, const std::filesystem::path& path) {
  std::vector<std::string> names;
  for (;;) {
    errno = 0;
    const dirent* entry = ::readdir(directory);
    if (entry == nullptr && errno == EINTR) continue;
    if (entry == nullptr) break;
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
  }
  if (errno != 0) throw_system_error("listing of", path, errno);
  std::sort(names.begin(), names.end());
  return names;
}

/// A name, relative to the descriptor of an open directory, so that other processes cannot redirect it by a link.
struct Entry {
  int parent;
  std::string name;
  std::filesystem::path path;
};

int unlink_entry(const Entry& entry, int flags) {
  const int error =
      call_with_faults("unlink", entry.path, [&] { return ::unlinkat(entry.parent, entry.name.c_str(), flags); });
  return error == ENOENT ? 0 : error;  // another process removed it
}

void remove_entry(const Entry& entry) {
  const int error = unlink_entry(entry, 0);
  if (error == 0) return;
  if (error != EISDIR && error != EPERM) throw_system_error("removal of", entry.path, error);
  const DirectoryHandle directory = open_directory(entry.parent, entry.name.c_str(), O_NOFOLLOW);
  if (directory == nullptr) {
    if (errno == ENOENT) return;
    // Not a directory after all: report the error of unlink.
    throw_system_error("removal of", entry.path, errno == ENOTDIR || errno == ELOOP ? error : errno);
  }
  for (const std::string& name : names_in(directory.get(), entry.path)) {
    remove_entry({::dirfd(directory.get()), name, entry.path / name});
  }
  const int rmdir_error = unlink_entry(entry, AT_REMOVEDIR);
  if (rmdir_error != 0) throw_system_error("removal of directory", entry.path, rmdir_error);
}

/// Returns 0, or errno of mkdir(2). Throws if the new directory cannot be given the requested access.
int make_one_directory(const std::filesystem::path& path) {
  const int error = call_with_faults(
      "mkdir", path, [&] { return ::mkdir(path.c_str(), internal::mode_to_make(internal::Made::kDirectory)); });
  if (error != 0 || !internal::is_access_asked_for()) return error;
  const DirectoryHandle made = open_directory(AT_FDCWD, path.c_str(), O_NOFOLLOW);
  if (made == nullptr) throw_system_error("open of directory", path, errno);
  internal::give_access(::dirfd(made.get()), path, internal::Made::kDirectory);
  return 0;
}

/// Throws if the path, or one of its parents, exists but is not a directory.
void refuse_file_in_the_way(const std::filesystem::path& path) {
  std::error_code ignored;
  for (std::filesystem::path at = path; at.has_relative_path(); at = at.parent_path()) {
    const auto status = std::filesystem::status(at, ignored);
    if (!std::filesystem::exists(status) || std::filesystem::is_directory(status)) continue;
    throw Error(ErrorKind::kUsage, "'" + shown(at) + "' is a file, and a directory is wanted there", {0, at.native()});
  }
}

/// Returns 0 or errno.
int rename_once(const std::filesystem::path& from, const std::filesystem::path& to) {
  const Identity moved(from);
  const int error = call_with_faults("rename", to, [&] { return std::rename(from.c_str(), to.c_str()); });
  return error == ENOENT && moved.has(to) ? 0 : error;
}

/// Returns 0, or errno of link(2), which never replaces an existing file. Throws if `from` cannot be removed then.
int link_to_new(const std::filesystem::path& from, const std::filesystem::path& to) {
  const Identity linked(from);
  int error = call_with_faults("link", to, [&] { return ::link(from.c_str(), to.c_str()); });
  if (error == EEXIST && linked.has(to)) error = 0;
  if (error != 0) return error;
  if (const int left = unlink_entry({AT_FDCWD, from.native(), from}, 0); left != 0) {
    throw_system_error("removal of", from, left);
  }
  return 0;
}

/// Returns 0, or errno of stat(2), or of lstat(2) if `flags` is AT_SYMLINK_NOFOLLOW.
int stat_of(const std::filesystem::path& path, struct stat& status, int flags = 0) {
  const int error = fault_error("stat", path);
  if (error != 0) return error;
  return call_again([&] { return ::fstatat(AT_FDCWD, path.c_str(), &status, flags); });
}

bool is_there(const std::filesystem::path& path, int flags) {
  struct stat status {};
  const int error = stat_of(path, status, flags);
  if (error != 0 && error != ENOENT && error != ENOTDIR) throw_system_error("stat of", path, error);
  return error == 0;
}

}  // namespace

void make_directory(const std::filesystem::path& path) {
  const std::filesystem::path clean = path.has_filename() ? path : path.parent_path();  // "a/b/" is "a/b"
  int error = make_one_directory(clean);
  if (error == ENOENT && clean.has_parent_path() && clean.parent_path() != clean) {
    make_directory(clean.parent_path());
    error = make_one_directory(clean);
  }
  std::error_code ignored;
  if (error == EEXIST && std::filesystem::is_directory(clean, ignored)) return;
  if (error == EEXIST || error == ENOTDIR) refuse_file_in_the_way(clean);
  if (error != 0) throw_system_error("creation of directory", path, error);
  sync_directory(clean.has_parent_path() ? clean.parent_path() : ".");
}

void make_new_directory(const std::filesystem::path& path) {
  const bool was_there = Identity(path).is_known();
  int error = make_one_directory(path);
  if (error == EEXIST && !was_there && Identity(path).is_directory()) error = 0;
  if (error != 0) throw_system_error("creation of directory", path, error);
}

void rename(const std::filesystem::path& from, const std::filesystem::path& to) {
  const int error = rename_once(from, to);
  if (error != 0) throw_system_error("rename of '" + shown(from) + "' to", to, error);
}

Renamed try_rename(const std::filesystem::path& from, const std::filesystem::path& to) {
  const int error = rename_once(from, to);
  if (error == ENOENT) return Renamed::kSourceMissing;
  if (error == EEXIST || error == ENOTEMPTY || error == ENOTDIR) return Renamed::kTargetExists;
  if (error != 0) throw_system_error("rename of '" + shown(from) + "' to", to, error);
  return Renamed::kDone;
}

bool rename_to_new(const std::filesystem::path& from, const std::filesystem::path& to) {
  const Identity moved(from);
  int error = call_with_faults(
      "rename", to, [&] { return ::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE); });
  if ((error == ENOENT || error == EEXIST) && moved.has(to) && !Identity(from).is_known()) return true;
  if (is_unsupported(error)) error = link_to_new(from, to);
  if (error == EEXIST) return false;
  if (error == EPERM || error == EXDEV || is_unsupported(error)) {
    std::optional<File> place = create_exclusively(to);
    if (!place) return false;
    place->close();
    error = rename_once(from, to);
  }
  if (error != 0) throw_system_error("rename of '" + shown(from) + "' to", to, error);
  return true;
}

bool exchange(const std::filesystem::path& a, const std::filesystem::path& b) {
  const int error = call_with_faults(
      "exchange", b, [&] { return ::renameat2(AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), RENAME_EXCHANGE); });
  if (is_unsupported(error)) return false;
  if (error != 0) throw_system_error("exchange of '" + shown(a) + "' with", b, error);
  return true;
}

void sync_directory(const std::filesystem::path& path) {
  Descriptor descriptor;
  int error = call_with_faults("open", path, [&] {
    descriptor = Descriptor(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    return descriptor.get();
  });
  if (error != 0) throw_system_error("open of directory", path, error, Missing::kIsNotFound);
  error = call_with_faults("fsync", path, [&] { return ::fsync(descriptor.get()); });
  // EBADF: some file systems require a writable descriptor, which a directory cannot have.
  if (error != 0 && error != EBADF && !is_unsupported(error)) throw_system_error("fsync of directory", path, error);
}

void refresh_directory(const std::filesystem::path& path, const std::string& name) {
  const std::filesystem::path made = path / name;
  File(made, OpenMode::kCreateOrTruncate).close();
  remove_tree(made);  // does not fail if the file is already gone
}

void remove_tree(const std::filesystem::path& path) {
  const std::filesystem::path clean = path.has_filename() ? path : path.parent_path();
  remove_entry({AT_FDCWD, clean.native(), clean});
}

std::filesystem::path absolute_path(const std::filesystem::path& path) {
  if (path.empty()) return path;
  std::error_code failed;
  const std::filesystem::path whole = std::filesystem::absolute(path, failed);
  if (failed) {
    throw Error(ErrorKind::kUsage,
                fmt::format("'{}' is relative, and the current directory is not known ({}); give an absolute path",
                            base::printable(path.string()), failed.message()),
                {failed.value(), path.native()});
  }
  std::filesystem::path clean;
  for (const std::filesystem::path& part : whole) {
    if (part != ".") clean /= part;
  }
  return clean;
}

bool exists(const std::filesystem::path& path) { return is_there(path, 0); }

bool is_name_taken(const std::filesystem::path& path) { return is_there(path, AT_SYMLINK_NOFOLLOW); }

std::filesystem::path nearest_existing(std::filesystem::path path) {
  while (!path.empty() && !is_there(path, 0)) {
    if (path == path.parent_path()) break;
    path = path.parent_path();
  }
  return path.empty() ? std::filesystem::path(".") : path;
}

std::uint64_t file_size(const std::filesystem::path& path) {
  struct stat status {};
  const int error = stat_of(path, status);
  if (error != 0) throw_system_error("stat of", path, error, Missing::kIsNotFound);
  return static_cast<std::uint64_t>(status.st_size);
}

std::vector<DirectoryEntry> list_directory(const std::filesystem::path& path) {
  DirectoryHandle directory;
  const int error = call_with_faults("open", path, [&] {
    directory = open_directory(AT_FDCWD, path.c_str(), 0);
    return directory == nullptr ? -1 : 0;
  });
  if (error != 0) throw_system_error("listing of", path, error, Missing::kIsNotFound);
  std::vector<DirectoryEntry> entries;
  for (const std::string& name : names_in(directory.get(), path)) {
    struct stat status {};
    const int parent = ::dirfd(directory.get());
    const auto look = [&](int flags) {
      return call_again([&] { return ::fstatat(parent, name.c_str(), &status, flags); });
    };
    int failed = fault_error("stat", path / name);
    if (failed == 0) failed = look(AT_SYMLINK_NOFOLLOW);
    if (failed == ENOENT) continue;  // removed since the listing
    if (failed != 0) {
      entries.push_back({name, false, false, 0, false, failed});
      continue;
    }
    const bool is_link = S_ISLNK(status.st_mode);
    const int beyond = is_link ? look(0) : 0;
    if (beyond != 0) {
      const bool leads_nowhere = beyond == ENOENT || beyond == ENOTDIR || beyond == ELOOP;
      entries.push_back({name, false, false, 0, true, leads_nowhere ? 0 : beyond});
      continue;
    }
    const bool is_regular = S_ISREG(status.st_mode);
    entries.push_back({name, S_ISDIR(status.st_mode), is_regular,
                       is_regular ? static_cast<std::uint64_t>(status.st_size) : 0, is_link});
  }
  return entries;
}

}  // namespace cairn::os
