// Files through POSIX calls: complete reads and writes, fsync, rename, with fault hooks (fault.hpp).
//
// Errors of the system are kIo, or, in most calls that open, kNotFound for ENOENT. They name operation, path and cause.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "cairn/error.hpp"

namespace cairn::os {

/// kCreateNewWithoutLayout: on Lustre, the file has no objects until striping is set or data is written (striping.hpp).
enum class OpenMode { kRead, kWrite, kCreateNew, kCreateOrTruncate, kCreateNewWithoutLayout };

/// A descriptor that is closed with the object.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int number) : number_(number) {}
  ~Descriptor();
  Descriptor(Descriptor&& other) noexcept : number_(other.release()) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  [[nodiscard]] int get() const { return number_; }
  [[nodiscard]] int release() { return std::exchange(number_, -1); }

 private:
  int number_ = -1;
};

/// An advisory lock of a file (flock), held until the object is destroyed. The File must outlive the FileLock.
class FileLock {
 public:
  FileLock() = default;
  ~FileLock();
  FileLock(FileLock&& other) noexcept;
  FileLock& operator=(FileLock&& other) noexcept;
  /// Whether the lock is held.
  explicit operator bool() const { return descriptor_ >= 0; }

 private:
  friend class File;
  explicit FileLock(int descriptor) : descriptor_(descriptor) {}
  int descriptor_ = -1;
};

class File;
std::optional<File> create_exclusively(const std::filesystem::path& path);

/// A path for messages: unprintable characters escaped, at most 1,000 characters.
std::string shown(const std::filesystem::path& path);

/// Calls `work` and returns its result; an Error without a path is thrown again with this path.
template <class Work>
auto about(const std::filesystem::path& path, Work work) {
  try {
    return work();
  } catch (const Error& error) {
    if (!error.path().empty()) throw;
    ErrorDetails details = error.details();
    details.path = path.native();
    throw Error(error.kind(), error.what(), std::move(details));
  }
}

/// An open file; close() reports errors, the destructor cannot.
class File {
 public:
  File() = default;
  /// A file to read must be regular: FIFOs and devices are refused (kIo). A new file gets the access of the
  /// thread's AccessScope (access.hpp), or the umask's default.
  File(const std::filesystem::path& path, OpenMode mode);

  [[nodiscard]] bool is_open() const { return descriptor() >= 0; }
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  [[nodiscard]] int descriptor() const { return descriptor_.get(); }
  [[nodiscard]] std::uint64_t size_bytes() const;

  /// Reads exactly data.size() bytes; a file that ends earlier is Error(kIo) "… ends at byte …".
  void read_at(std::span<std::byte> data, std::uint64_t offset) const;
  void write_at(std::span<const std::byte> data, std::uint64_t offset);
  /// Waits until no other open File of the same file, in any process, has the lock. Calls `go_on` between attempts (to
  /// sleep, or to throw) and gives up when `go_on` returns false. If the file system has no locks, the result is not
  /// held: use locks to take turns, not to protect data.
  FileLock lock(const std::function<bool()>& go_on);
  /// The result is not held if another File has the lock, or if locks fail for any reason.
  FileLock try_lock();
  /// ftruncate to the size.
  void set_size(std::uint64_t bytes);
  /// fallocate(2) of [0, bytes). False if the file system does not support it; throws for other errors.
  bool reserve(std::uint64_t bytes);
  /// Asks the kernel to start writing back the pages of a range, and does not wait. Speeds up a later sync(); only
  /// sync() reports errors.
  void start_writeback(std::uint64_t offset, std::uint64_t bytes) const noexcept;
  /// fsync. An error is final: the file must be written again elsewhere.
  void sync();
  /// Makes writes visible to other nodes that open the file afterwards: the client of a network file system sends them
  /// when a descriptor is closed. Not durable; has no effect on a local file system.
  void flush();
  void close();

 private:
  void check_regular();
  friend std::optional<File> create_exclusively(const std::filesystem::path& path);

  std::filesystem::path path_;
  Descriptor descriptor_;
};

/// The content of the whole file. Throws Error(kFormat) if the file is larger than `limit_bytes`.
std::string read_text(const std::filesystem::path& path, std::uint64_t limit_bytes);

/// Writes path + ".tmp-<pid>-<random>", fsync, rename onto `path`, fsync of the directory: `path` has the whole old or
/// the whole new content. The temporary file is removed on failure, but not after a kill.
void replace_file(const std::filesystem::path& path, std::span<const std::byte> content);

/// Creates a new file with the content and fsyncs it, without a temporary name: for files in a directory that will be
/// renamed as a whole. On failure the incomplete file stays.
void write_new_file(const std::filesystem::path& path, std::span<const std::byte> content);

/// Creates a file with O_EXCL (which NFS has since version 3): only one creator succeeds. Nothing if the name exists.
std::optional<File> create_exclusively(const std::filesystem::path& path);

void make_directory(const std::filesystem::path& path);  ///< durable; makes missing parents; `path` may exist
/// Error(kIo) if `path` exists. Other processes must not make the same directory at the same time.
void make_new_directory(const std::filesystem::path& path);
// A network file system may carry out a request twice, if the first answer is lost. The second time, the old name
// is missing or the new name exists, so all renames below, but not exchange(), check which object has the new name.

/// A file replaces a file; a directory replaces only an empty directory.
void rename(const std::filesystem::path& from, const std::filesystem::path& to);
/// As rename(), but a race with another rename is returned as a result, not thrown. A target directory with
/// entries, or a file as the target of a directory, is kTargetExists.
enum class Renamed { kDone, kSourceMissing, kTargetExists };
Renamed try_rename(const std::filesystem::path& from, const std::filesystem::path& to);
/// Renames a file to a free name; false if the name is taken, also by a concurrent process. Never replaces a file.
/// If the file system has neither RENAME_NOREPLACE nor hard links, `to` is an empty file for a moment.
bool rename_to_new(const std::filesystem::path& from, const std::filesystem::path& to);
/// Swaps two existing names atomically. False if the file system does not support this.
bool exchange(const std::filesystem::path& a, const std::filesystem::path& b);
/// Makes the names in the directory durable. A file system that cannot fsync directories is not an error.
void sync_directory(const std::filesystem::path& path);
/// Makes the client of a network file system ask its server for the directory's entries, which are otherwise cached for
/// up to a minute: creates and removes `name`, which other processes must not use.
void refresh_directory(const std::filesystem::path& path, const std::string& name);
void remove_tree(const std::filesystem::path& path);  ///< never follows symbolic links; the path may be missing
/// Relative paths start at the current directory; "." parts are dropped. Throws Error(kUsage) when a path is relative
/// and the current directory is gone.
std::filesystem::path absolute_path(const std::filesystem::path& path);
bool exists(const std::filesystem::path& path);              ///< follows links; false for a dangling link
bool is_name_taken(const std::filesystem::path& path);       ///< true for a dangling link, too
std::uint64_t file_size(const std::filesystem::path& path);  ///< Error(kNotFound) when missing

struct DirectoryEntry {
  std::string name;
  bool is_directory = false;  ///< types are those of a symbolic link's target; a dangling link has neither type
  bool is_regular = false;
  std::uint64_t size_bytes = 0;
  bool is_link = false;  ///< whether or not the link dangles
  int error = 0;         ///< errno of a failed stat, after which the type is unknown; 0: none failed
};
/// Entries sorted by name, without "." and "..". Error(kNotFound) when the directory is missing.
std::vector<DirectoryEntry> list_directory(const std::filesystem::path& path);

/// The file system of a path: its type ("ext4", "tmpfs", "lustre", "gpfs", "nfs", "beegfs", "xfs", "0x1234"), the bytes
/// that are free for this user, and the block size.
struct FileSystemInfo {
  std::string type;
  std::uint64_t free_bytes = 0;
  std::uint64_t block_bytes = 0;

  /// Files are in memory: there is no storage behind the page cache.
  [[nodiscard]] bool lives_in_memory() const { return type == "tmpfs" || type == "ramfs"; }
  /// Only this machine sees the files, unless it exports them. False for shared and unknown types of file systems.
  [[nodiscard]] bool is_local() const;
};
FileSystemInfo file_system_of(const std::filesystem::path& path);
/// The path itself or its closest existing parent: a file made at `path` will be on the same file system.
std::filesystem::path nearest_existing(std::filesystem::path path);

}  // namespace cairn::os
