#include "os/access.hpp"

#include <fmt/core.h>
#include <grp.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <vector>

#include "base/digits.hpp"
#include "base/text.hpp"
#include "cairn/error.hpp"
#include "os/system_calls.hpp"

namespace cairn::os {
namespace {

constexpr unsigned kPermissionBits = 0777;
constexpr unsigned kOwnerBits = 0600;
constexpr unsigned kReadBits = 0444;

thread_local const Access* access_now = nullptr;

/// Looks up a name first, then a number, as chgrp(1) does.
gid_t number_of_group(const std::string& group) {
  std::vector<char> text(1024);
  ::group entry{};
  ::group* found = nullptr;
  constexpr std::size_t kMostBytes = 16 << 20;  // a group may have very many members
  while (::getgrnam_r(group.c_str(), &entry, text.data(), text.size(), &found) == ERANGE && text.size() < kMostBytes) {
    text.resize(2 * text.size());
  }
  if (found != nullptr) return found->gr_gid;
  const auto number = base::number_in<gid_t>(group);
  if (number && *number != std::numeric_limits<gid_t>::max()) return *number;
  throw Error(ErrorKind::kUsage, fmt::format("there is no group '{}' (Options::files.group)", base::printable(group)));
}

bool may_give(gid_t group) {
  if (::geteuid() == 0 || ::getegid() == group) return true;
  const int count = ::getgroups(0, nullptr);
  std::vector<gid_t> own(static_cast<std::size_t>(std::max(count, 0)));
  if (::getgroups(count, own.data()) < 0) return false;
  return std::find(own.begin(), own.end(), group) != own.end();
}

}  // namespace

Access access_of(const std::optional<unsigned>& mode, const std::string& group) {
  Access access;
  access.mode = mode;
  if (mode && (*mode & ~kPermissionBits) != 0) {
    throw Error(ErrorKind::kUsage,
                fmt::format("mode 0{:o} has more than permission bits (Options::files.mode: 0 to 0777)", *mode));
  }
  if (mode && (*mode & kOwnerBits) != kOwnerBits) {
    throw Error(ErrorKind::kUsage,
                fmt::format("mode 0{:o} keeps its owner from reading or writing (Options::files.mode)", *mode));
  }
  if (group.empty()) return access;
  access.group = number_of_group(group);
  if (!may_give(*access.group)) {
    throw Error(ErrorKind::kUsage, fmt::format("this process is not in group '{}' ({}), and may not give its files to "
                                               "it (Options::files.group)",
                                               base::printable(group), *access.group));
  }
  return access;
}

AccessScope::AccessScope(const Access& access) : before_(access_now) { access_now = &access; }

AccessScope::~AccessScope() { access_now = before_; }

bool internal::is_access_asked_for() { return access_now != nullptr && (access_now->mode || access_now->group); }

unsigned internal::mode_to_make(Made what) {
  const bool is_asked_for = access_now != nullptr && access_now->mode;
  if (what == Made::kDirectory) return is_asked_for ? 0700 : 0777;
  return is_asked_for ? 0600 : 0666;
}

void internal::give_access(int descriptor, const std::filesystem::path& path, Made what) {
  if (access_now == nullptr) return;
  if (access_now->group) {
    const int error = call_with_faults(
        "chown", path, [&] { return ::fchown(descriptor, static_cast<uid_t>(-1), *access_now->group); });
    if (error != 0) throw_system_error(fmt::format("giving to group {} of", *access_now->group), path, error);
  }
  if (!access_now->mode) return;
  unsigned mode = *access_now->mode;
  if (what == Made::kDirectory) {
    struct stat status {};
    if (::fstat(descriptor, &status) != 0) throw_system_error("stat of", path, errno);
    mode |= (mode & kReadBits) >> 2;
    mode |= status.st_mode & S_ISGID;  // inherited bit, so that entries of the new directory get its group
  }
  const int error = call_with_faults("chmod", path, [&] { return ::fchmod(descriptor, mode); });
  if (error != 0) throw_system_error(fmt::format("setting mode 0{:o} of", mode), path, error);
}

}  // namespace cairn::os
