#include "os/share_file.hpp"

#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "os/file.hpp"
#include "os/system_calls.hpp"

namespace cairn::os {
namespace {

/// Whether the errno says that these two files can never share anything.
bool is_refused(int error) {
  switch (error) {
    case EXDEV:
    case EINVAL:
    case EPERM:
    case EACCES:
    case EMLINK:
    case ENOTTY: return true;
    default: return is_unsupported(error);
  }
}

}  // namespace

bool clone_file(const std::filesystem::path& from, const std::filesystem::path& to) {
  const File source(from, OpenMode::kRead);
  File made(to, OpenMode::kCreateNew);
  const int error =
      call_with_faults("clone", to, [&] { return ::ioctl(made.descriptor(), FICLONE, source.descriptor()); });
  if (error == 0) {
    made.sync();
    made.close();
    return true;
  }
  made.close();
  remove_tree(to);
  if (is_refused(error)) return false;
  throw_system_error("clone to", to, error);
}

bool link_file(const std::filesystem::path& from, const std::filesystem::path& to) {
  struct stat status {};
  if (const int error = call_again([&] { return ::lstat(from.c_str(), &status); }); error != 0)
    throw_system_error("stat of", from, error, Missing::kIsNotFound);
  if (!S_ISREG(status.st_mode)) return false;
  // The permission goes first: from the link on, a write through one name would change the other.
  constexpr mode_t kWritable = S_IWUSR | S_IWGRP | S_IWOTH;
  if ((status.st_mode & kWritable) != 0) {
    const mode_t mode = status.st_mode & ~kWritable & 07777;
    const int error = call_with_faults("chmod", from, [&] { return ::chmod(from.c_str(), mode); });
    if (is_refused(error)) return false;
    if (error != 0) throw_system_error("chmod of", from, error);
  }
  const int error = call_with_faults("link", to, [&] { return ::link(from.c_str(), to.c_str()); });
  if (error == 0) return true;
  if (is_refused(error)) return false;
  throw_system_error("link to", to, error);
}

}  // namespace cairn::os
