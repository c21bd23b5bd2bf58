#include "os/limits.hpp"

#include <dirent.h>
#include <fmt/core.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "base/text.hpp"

namespace cairn::os {
namespace {

/// In containers the hard limit may be a billion. Programs that close all possible descriptors would then take minutes.
constexpr rlim_t kEnoughFiles = 1 << 16;

rlimit limit_of(decltype(RLIMIT_NOFILE) resource) {
  rlimit limit{RLIM_INFINITY, RLIM_INFINITY};
  ::getrlimit(resource, &limit);
  return limit;
}

}  // namespace

std::uint64_t proc_bytes(const char* path, const char* key) {
  std::FILE* const file = std::fopen(path, "re");
  if (file == nullptr) return 0;
  std::uint64_t kibibytes = 0;
  char line[200];
  const std::size_t length = std::strlen(key);
  while (std::fgets(line, sizeof line, file) != nullptr) {
    if (std::strncmp(line, key, length) == 0) kibibytes = std::strtoull(line + length, nullptr, 10);
  }
  std::fclose(file);
  return kibibytes << 10;
}

OpenFileLimit meet_limits() {
  rlimit files = limit_of(RLIMIT_NOFILE);
  const OpenFileLimit found{files.rlim_cur, files.rlim_max};
  files.rlim_cur = std::max(files.rlim_cur, std::min(files.rlim_max, kEnoughFiles));
  ::setrlimit(RLIMIT_NOFILE, &files);  // if this is refused, the old limit stays, and errors name it
  ::signal(SIGXFSZ, SIG_IGN);
  return found;
}

std::uint64_t free_descriptors() {
  const std::uint64_t most = limit_of(RLIMIT_NOFILE).rlim_cur;
  std::uint64_t open = 0;
  // Avoids std::filesystem, which may end the process if memory is short.
  if (DIR* const all = ::opendir("/proc/self/fd")) {
    while (const dirent* const entry = ::readdir(all)) open += entry->d_name[0] == '.' ? 0 : 1;
    ::closedir(all);
  }
  return most - std::min(open, most);
}

std::uint64_t descriptors_to_use(std::uint64_t fewest) { return std::max(free_descriptors() / 2, fewest); }

std::optional<std::uint64_t> largest_file_bytes() {
  const rlim_t most = limit_of(RLIMIT_FSIZE).rlim_cur;
  return most == RLIM_INFINITY ? std::nullopt : std::optional<std::uint64_t>(most);
}

int refuse_size(std::uint64_t bytes) { return bytes > limit_of(RLIMIT_FSIZE).rlim_cur ? EFBIG : 0; }

std::string memory_note() noexcept {
  try {
    const std::uint64_t held = proc_bytes("/proc/self/status", "VmRSS:");
    const std::uint64_t left = proc_bytes("/proc/meminfo", "MemAvailable:");
    const std::uint64_t all = proc_bytes("/proc/meminfo", "MemTotal:");
    if (held == 0 || all == 0) return {};
    const rlim_t most = limit_of(RLIMIT_AS).rlim_cur;
    const std::string limit =
        most == RLIM_INFINITY ? "" : fmt::format(" and may map {} (ulimit -v)", base::format_size(most));
    return fmt::format(
        "; this process holds {}{}, its host has {} of {} left: take more hosts, fewer ranks on each, or a "
        "smaller memory budget (--memory)",
        base::format_size(held), limit, base::format_size(left), base::format_size(all));
  } catch (...) {  // there is no memory for the note
    return {};
  }
}

std::string remedy_of(int error) {
  if (error == EMFILE) {
    return fmt::format("; this process may have {} files open: raise the limit (ulimit -n) before it starts",
                       limit_of(RLIMIT_NOFILE).rlim_cur);
  }
  if (error == ENFILE) return "; too many files are open on this machine: its administrator can raise fs.file-max";
  if (error == EXDEV) {
    return "; a directory of a container's image cannot be renamed (overlayfs): use one that is mounted into it";
  }
  if (error != EFBIG) return {};
  const auto most = largest_file_bytes();
  if (!most) return "; the file system takes no file of that size: let files be smaller";
  return fmt::format("; files of this process may have {} bytes: raise the limit (ulimit -f) before it starts", *most);
}

}  // namespace cairn::os
