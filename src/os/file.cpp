// Descriptors and whole files.
#include "os/file.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <random>
#include <string_view>

#include "base/checked.hpp"
#include "base/internal_error.hpp"
#include "base/log.hpp"
#include "base/text.hpp"
#include "os/access.hpp"
#include "os/fault.hpp"
#include "os/limits.hpp"
#include "os/system_calls.hpp"

namespace cairn::os {
namespace {

/// Linux's limit for one read or write.
constexpr std::uint64_t kTransferBytes = 0x7ffff000;

int flags_of(OpenMode mode) {
  // Write-only for writers: with O_RDWR, NFS clients may write back whole pages, and so undo another rank's writes.
  switch (mode) {
    case OpenMode::kRead: return O_RDONLY;
    case OpenMode::kWrite: return O_WRONLY;
    case OpenMode::kCreateNew: return O_WRONLY | O_CREAT | O_EXCL;
    case OpenMode::kCreateOrTruncate: return O_WRONLY | O_CREAT | O_TRUNC;
    // O_LOV_DELAY_CREATE of lustre_user.h.
    case OpenMode::kCreateNewWithoutLayout: return O_WRONLY | O_CREAT | O_EXCL | 0100000000 | O_NOCTTY | O_ASYNC;
  }
  throw base::internal_error("unknown open mode");
}

off_t to_offset(std::uint64_t value) { return base::narrow<off_t>(value, "file offset"); }

/// Moves all `bytes` with `move(done, count)`, which returns a number like pwrite. Goes on after short transfers and
/// EINTR. Returns 0 and the bytes moved (fewer if `move` returned 0), or errno and the bytes moved before.
template <class Move>
std::pair<int, std::uint64_t> transfer(std::string_view operation, const std::filesystem::path& path,
                                       std::uint64_t bytes, Move move) {
  std::uint64_t done = 0;
  while (done < bytes) {
    std::uint64_t count = std::min(bytes - done, kTransferBytes);
    const auto fault = check_fault(operation, path);
    if (fault && fault->short_bytes) count = std::min(count, *fault->short_bytes);
    int error = fault ? fault->error : 0;
    if (fault && fault->lies) {
      if (half_of(count) != 0 && move(done, half_of(count)) < 0) return {errno, done};
      done += count;
      continue;
    }
    const std::int64_t begin_ns = begin_record();
    const ssize_t moved = error == 0 ? move(done, count) : -1;
    if (error == 0 && moved < 0) error = errno;
    if (error == EINTR) continue;
    if (error != 0) return {error, done};
    if (moved == 0) break;
    done += static_cast<std::uint64_t>(moved);
    record(operation, path, begin_ns);
    work_moved();
  }
  return {0, done};
}

std::filesystem::path temporary_name(const std::filesystem::path& path) {
  std::random_device random;
  std::filesystem::path name = path;
  name += fmt::format(".tmp-{}-{:08x}", ::getpid(), random());  // process ids repeat in containers
  return name;
}

void write_and_sync(const std::filesystem::path& path, std::span<const std::byte> content) {
  File file(path, OpenMode::kCreateNew);
  file.write_at(content, 0);
  file.sync();
  file.close();
}

// Names of file systems, by the magic numbers of statfs(2) and of the vendors.

struct Magic {
  std::uint32_t number;
  std::string_view name;
};

/// Sources: linux/magic.h; for Lustre and GPFS, ROMIO (ad_fstype.c); for BeeGFS, "fhgfs" in coreutils.
constexpr std::array<Magic, 18> kMagics = {{
    {0x0000EF53, "ext4"},
    {0x58465342, "xfs"},
    {0x9123683E, "btrfs"},
    {0x01021994, "tmpfs"},
    {0x858458F6, "ramfs"},
    {0x794C7630, "overlay"},
    {0x2FC12FC1, "zfs"},
    {0x0BD00BD0, "lustre"},
    {0x47504653, "gpfs"},
    {0x00006969, "nfs"},
    {0x19830326, "beegfs"},
    {0x65735546, "fuse"},
    {0x00C36400, "ceph"},
    {0x20030528, "orangefs"},
    {0xFF534D42, "cifs"},
    {0xFE534D42, "smb2"},
    {0x01021997, "9p"},
    {0x00004D44, "vfat"},
}};

std::string name_of(std::uint32_t number) {
  for (const Magic& magic : kMagics) {
    if (magic.number == number) return std::string(magic.name);
  }
  return fmt::format("0x{:x}", number);
}

}  // namespace

std::string shown(const std::filesystem::path& path) { return base::printable(path.native(), 1000); }

Descriptor::~Descriptor() {
  if (number_ >= 0) ::close(number_);
}

FileLock::~FileLock() {
  if (descriptor_ >= 0) ::flock(descriptor_, LOCK_UN);
}

FileLock::FileLock(FileLock&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}

FileLock& FileLock::operator=(FileLock&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

File::File(const std::filesystem::path& path, OpenMode mode) : path_(path) {
  const int error = call_with_faults("open", path_, [&] {
    // Without O_NONBLOCK, opening a FIFO that has no writer would wait for ever.
    descriptor_ =
        Descriptor(::open(path_.c_str(), flags_of(mode) | O_CLOEXEC | (mode == OpenMode::kRead ? O_NONBLOCK : 0),
                          internal::mode_to_make(internal::Made::kFile)));
    return descriptor();
  });
  if (error != 0)
    throw_system_error(mode == OpenMode::kRead ? "open for reading of" : "open for writing of", path_, error,
                       Missing::kIsNotFound);
  if (mode == OpenMode::kRead) check_regular();
  if (mode != OpenMode::kRead && mode != OpenMode::kWrite) {
    internal::give_access(descriptor(), path_, internal::Made::kFile);
  }
}

void File::check_regular() {
  struct stat status {};
  const int error = call_again([&] { return ::fstat(descriptor(), &status); });
  if (error == 0 && S_ISREG(status.st_mode)) return;
  if (error != 0) throw_system_error("stat of", path_, error);
  throw Error(ErrorKind::kIo, fmt::format("'{}' is not a regular file", shown(path_)), {0, path_.native()});
}

std::optional<File> create_exclusively(const std::filesystem::path& path) {
  File file;
  file.path_ = path;
  const int error = call_with_faults("open", path, [&] {
    file.descriptor_ = Descriptor(::open(path.c_str(), flags_of(OpenMode::kCreateNew) | O_CLOEXEC,
                                         internal::mode_to_make(internal::Made::kFile)));
    return file.descriptor();
  });
  if (error == EEXIST) return std::nullopt;
  if (error != 0) throw_system_error("creation of", path, error);
  try {
    internal::give_access(file.descriptor(), path, internal::Made::kFile);
  } catch (...) {
    static_cast<void>(::unlink(path.c_str()));
    throw;
  }
  return file;
}

std::uint64_t File::size_bytes() const {
  struct stat status {};
  const int error = call_again([&] { return ::fstat(descriptor(), &status); });
  if (error != 0) throw_system_error("stat of", path_, error);
  return static_cast<std::uint64_t>(status.st_size);
}

void File::read_at(std::span<std::byte> data, std::uint64_t offset) const {
  to_offset(base::add(offset, data.size(), "file offset"));
  const auto [error, done] = transfer("read", path_, data.size(), [&](std::uint64_t at, std::uint64_t count) {
    return ::pread(descriptor(), data.data() + at, count, to_offset(offset + at));
  });
  if (error != 0) {
    throw_system_error(fmt::format("read of {} bytes at offset {} from", data.size() - done, offset + done), path_,
                       error);
  }
  if (done == data.size()) return;
  throw Error(ErrorKind::kIo,
              fmt::format("'{}' ends at byte {}, but {} bytes were to be read at offset {}", shown(path_),
                          offset + done, data.size(), offset),
              {0, path_.native()});
}

void File::write_at(std::span<const std::byte> data, std::uint64_t offset) {
  const std::uint64_t end = base::add(offset, data.size(), "file offset");
  to_offset(end);
  const int refused = refuse_size(end);
  const auto [error, done] = refused != 0
                                 ? std::pair(refused, std::uint64_t{0})
                                 : transfer("write", path_, data.size(), [&](std::uint64_t at, std::uint64_t count) {
                                     return ::pwrite(descriptor(), data.data() + at, count, to_offset(offset + at));
                                   });
  if (error == 0 && done == data.size()) return;
  const std::string action = fmt::format("write of {} bytes at offset {} to", data.size() - done, offset + done);
  if (error != 0) throw_system_error(action, path_, error);
  throw Error(ErrorKind::kIo,
              fmt::format("{} '{}' failed: the file system took no byte and gave no error", action, shown(path_)),
              {0, path_.native()});
}

FileLock File::lock(const std::function<bool()>& go_on) {
  for (;;) {
    const int error = call_with_faults("flock", path_, [&] { return ::flock(descriptor(), LOCK_EX | LOCK_NB); });
    if (error == 0) break;
    if (error == EWOULDBLOCK && go_on()) continue;
    if (!is_open()) throw_system_error("lock of", path_, error);
    // Any errno means no lock: file systems use many (DVS 524; lock servers EIO and EREMOTE), and the safety of data
    // does not depend on locks.
    if (error != EWOULDBLOCK) base::log_debug(fmt::format("no lock of '{}': {}", shown(path_), error_text(error)));
    return {};
  }
  return FileLock(descriptor());
}

FileLock File::try_lock() {
  return lock([] { return false; });
}

void File::set_size(std::uint64_t bytes) {
  const off_t size = to_offset(bytes);
  int error = refuse_size(bytes);
  if (error == 0) error = call_with_faults("truncate", path_, [&] { return ::ftruncate(descriptor(), size); });
  if (error != 0) throw_system_error(fmt::format("setting the size to {} bytes of", bytes), path_, error);
}

bool File::reserve(std::uint64_t bytes) {
  if (bytes == 0) return true;
  const off_t size = to_offset(bytes);
  int error = refuse_size(bytes);
  if (error == 0) error = call_with_faults("truncate", path_, [&] { return ::fallocate(descriptor(), 0, 0, size); });
  if (is_unsupported(error)) return false;
  if (error != 0) throw_system_error(fmt::format("reserving {} bytes for", bytes), path_, error);
  return true;
}

void File::start_writeback(std::uint64_t offset, std::uint64_t bytes) const noexcept {
  ::sync_file_range(descriptor(), static_cast<off64_t>(offset), static_cast<off64_t>(bytes), SYNC_FILE_RANGE_WRITE);
}

void File::sync() {
  // EINTR is not a write-back error: the pages are still dirty, and the call may be repeated.
  const int error = call_with_faults("fsync", path_, [&] { return ::fsync(descriptor()); });
  if (error != 0) throw_system_error("fsync of", path_, error);
}

void File::flush() {
  int error = fault_error("close", path_);
  const int copy = error == 0 ? ::fcntl(descriptor(), F_DUPFD_CLOEXEC, 0) : -1;
  if (error == 0 && copy < 0) error = errno;
  if (copy >= 0 && ::close(copy) != 0) error = errno;
  if (error != 0 && error != EINTR) throw_system_error("writing back of", path_, error);
}

void File::close() {
  if (!is_open()) return;
  const int fault = fault_error("close", path_);
  // The descriptor is closed whatever close() returns; on Linux EINTR is harmless.
  const int error = ::close(descriptor_.release()) != 0 ? errno : 0;
  if (fault != 0 && fault != EINTR) throw_system_error("close of", path_, fault);
  if (error != 0 && error != EINTR) throw_system_error("close of", path_, error);
}

std::string read_text(const std::filesystem::path& path, std::uint64_t limit_bytes) {
  const File file(path, OpenMode::kRead);
  const std::uint64_t size = file.size_bytes();
  if (size > limit_bytes) {
    throw Error(ErrorKind::kFormat,
                fmt::format("'{}' has {} bytes, but at most {} are expected", shown(path), size, limit_bytes),
                {0, path.native()});
  }
  std::string text(base::narrow<std::size_t>(size, "file size"), '\0');
  file.read_at(std::as_writable_bytes(std::span(text.data(), text.size())), 0);
  return text;
}

void replace_file(const std::filesystem::path& path, std::span<const std::byte> content) {
  const std::filesystem::path temporary = temporary_name(path);
  try {
    write_and_sync(temporary, content);
    os::rename(temporary, path);
  } catch (...) {
    ::unlink(temporary.c_str());  // report the first failure
    throw;
  }
  sync_directory(path.has_parent_path() ? path.parent_path() : ".");
}

void write_new_file(const std::filesystem::path& path, std::span<const std::byte> content) {
  write_and_sync(path, content);
}

bool FileSystemInfo::is_local() const {
  constexpr std::array<std::string_view, 7> kLocal = {"ext4", "xfs", "btrfs", "zfs", "overlay", "tmpfs", "ramfs"};
  return std::find(kLocal.begin(), kLocal.end(), type) != kLocal.end();
}

FileSystemInfo file_system_of(const std::filesystem::path& path) {
  struct statfs type {};
  int error = call_again([&] { return ::statfs(path.c_str(), &type); });
  if (error != 0) throw_system_error("statfs of", path, error);
  struct statvfs space {};  // statfs does not define the unit of its block counts
  error = call_again([&] { return ::statvfs(path.c_str(), &space); });
  if (error != 0) throw_system_error("statvfs of", path, error);
  FileSystemInfo info;
  info.type = name_of(static_cast<std::uint32_t>(type.f_type));
  info.free_bytes = static_cast<std::uint64_t>(space.f_bavail) * space.f_frsize;
  info.block_bytes = space.f_bsize;
  return info;
}

}  // namespace cairn::os
