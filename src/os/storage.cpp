#include "os/storage.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/quota.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <ctime>
#include <fstream>
#include <sstream>
#include <string_view>

#include "base/text.hpp"
#include "os/file.hpp"
#include "os/system_calls.hpp"

namespace cairn::os {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kFatFileBytes = (1ULL << 32) - 1;
constexpr std::uint64_t kQuotaBlockBytes = 1024;  // QIF_DQBLKSIZE

/// Whether the process may use space and inodes that others may not, and has no quota.
bool is_root() { return ::geteuid() == 0; }

/// The device that is mounted at the file system with this device number, as quotactl(2) needs it; "" for a network
/// file system.
std::string block_device_of(dev_t device) {
  std::ifstream mounts("/proc/self/mountinfo");
  const std::string wanted = fmt::format("{}:{}", major(device), minor(device));
  for (std::string line; std::getline(mounts, line);) {
    std::istringstream words(line);
    std::string word;
    std::string number;
    words >> word >> word >> number;
    if (number != wanted) continue;
    while (words >> word && word != "-") {
    }
    std::string source;
    words >> word >> source;
    if (source.starts_with('/')) return source;
  }
  return {};
}

/// Asks by descriptor (Linux 5.14) or, where the kernel lacks that call, by device. False: the kernel does not tell.
bool ask_quota(int descriptor, const std::string& device, int type, unsigned id, dqblk& answer) {
  const auto command = static_cast<unsigned>(QCMD(Q_GETQUOTA, type));
#ifdef SYS_quotactl_fd
  const long number = SYS_quotactl_fd;
#else
  const long number = 443;
#endif
  if (::syscall(number, descriptor, command, id, &answer) == 0) return true;
  if (errno != ENOSYS || device.empty()) return false;
  return ::quotactl(static_cast<int>(command), device.c_str(), static_cast<int>(id),
                    reinterpret_cast<caddr_t>(&answer)) == 0;
}

std::vector<QuotaLeft> quotas_of(const fs::path& directory, const Access& access) {
  std::vector<QuotaLeft> quotas;
  if (is_root()) return quotas;  // the kernel does not apply them
  const Descriptor opened(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  struct stat about {};
  if (opened.get() < 0 || ::fstat(opened.get(), &about) != 0) return quotas;
  const std::string device = block_device_of(about.st_dev);
  const auto add = [&](const char* kind, int type, unsigned id) {
    dqblk answer{};
    if (!ask_quota(opened.get(), device, type, id, answer)) return;
    const QuotaRecord record{.hard_bytes = answer.dqb_bhardlimit * kQuotaBlockBytes,
                             .soft_bytes = answer.dqb_bsoftlimit * kQuotaBlockBytes,
                             .used_bytes = answer.dqb_curspace,
                             .soft_bytes_end_s = static_cast<std::int64_t>(answer.dqb_btime),
                             .hard_files = answer.dqb_ihardlimit,
                             .soft_files = answer.dqb_isoftlimit,
                             .used_files = answer.dqb_curinodes,
                             .soft_files_end_s = static_cast<std::int64_t>(answer.dqb_itime)};
    if (auto left = quota_left(fmt::format("{} {}", kind, id), record, std::time(nullptr))) {
      quotas.push_back(std::move(*left));
    }
  };
  constexpr int kProjects = 2;  // PRJQUOTA, which older headers lack
  const bool has_directory_group = (about.st_mode & S_ISGID) != 0;
  add("user", USRQUOTA, ::geteuid());
  add("group", GRPQUOTA, access.group ? *access.group : has_directory_group ? about.st_gid : ::getegid());
  fsxattr project{};
  if (::ioctl(opened.get(), FS_IOC_FSGETXATTR, &project) == 0 && project.fsx_projid != 0) {
    add("project", kProjects, project.fsx_projid);
  }
  return quotas;
}

/// The rest under a hard limit, or under a soft one whose time is over.
std::optional<std::uint64_t> left_of(std::uint64_t hard, std::uint64_t soft, std::uint64_t used, bool is_soft_over) {
  std::uint64_t limit = hard;
  if (soft != 0 && is_soft_over) limit = limit == 0 ? soft : std::min(limit, soft);
  if (limit == 0) return std::nullopt;
  return limit - std::min(limit, used);
}

}  // namespace

NoAccess access_problem(const fs::path& directory) {
  struct statx about {};
  if (::statx(AT_FDCWD, directory.c_str(), 0, STATX_TYPE, &about) == 0) {
    const auto attributes = about.stx_attributes & about.stx_attributes_mask;
    if ((attributes & STATX_ATTR_IMMUTABLE) != 0) return {EPERM, "is immutable", "chattr -i allows files in it"};
    if ((attributes & STATX_ATTR_APPEND) != 0) {
      return {EPERM, "allows only appending, so that nothing in it can be renamed", "chattr -a ends that"};
    }
  }
  // access(2) asks for the real user, who may be another one.
  if (::getuid() != ::geteuid() || ::getgid() != ::getegid()) return {};
  if (::access(directory.c_str(), W_OK | X_OK) == 0) return {};
  if (errno == EROFS) {
    return {EROFS, "is on a file system that is mounted read-only", "choose another directory, or have it mounted rw"};
  }
  if (errno != EACCES) return {};
  return {EACCES, fmt::format("cannot be written by this user (uid {})", ::geteuid()),
          "choose another directory or have its permissions changed (write and search)"};
}

void check_access(const fs::path& directory) {
  const NoAccess problem = access_problem(directory);
  if (problem.error == 0) return;
  throw Error(ErrorKind::kIo,
              fmt::format("{}: '{}' {}; {}", error_text(problem.error), shown(directory), problem.why, problem.remedy),
              {problem.error, directory.native()});
}

std::optional<QuotaLeft> quota_left(const std::string& of, const QuotaRecord& record, std::int64_t now_s) {
  const auto is_over = [&](std::int64_t end_s) { return end_s != 0 && end_s <= now_s; };
  QuotaLeft left{of, left_of(record.hard_bytes, record.soft_bytes, record.used_bytes, is_over(record.soft_bytes_end_s)),
                 left_of(record.hard_files, record.soft_files, record.used_files, is_over(record.soft_files_end_s))};
  if (!left.bytes && !left.files) return std::nullopt;
  return left;
}

StorageFacts storage_facts(const fs::path& directory, const Access& access) {
  StorageFacts facts;
  try {
    facts.type = file_system_of(directory).type;
  } catch (const Error&) {
    return facts;
  }
  struct statvfs space {};
  if (call_again([&] { return ::statvfs(directory.c_str(), &space); }) == 0) {
    // Some file systems have no figures, and report zeros.
    if (space.f_blocks != 0) {
      facts.free_bytes = static_cast<std::uint64_t>(is_root() ? space.f_bfree : space.f_bavail) * space.f_frsize;
    }
    if (space.f_files != 0) facts.free_files = is_root() ? space.f_ffree : space.f_favail;
  }
  if (facts.type == "vfat") facts.largest_file_bytes = kFatFileBytes;
  facts.quotas = quotas_of(directory, access);
  return facts;
}

bool tells_space_exactly(const StorageFacts& facts) {
  constexpr std::array<std::string_view, 8> kExact = {"ext4", "xfs",    "tmpfs", "lustre",
                                                      "gpfs", "beegfs", "nfs",   "vfat"};
  return std::find(kExact.begin(), kExact.end(), facts.type) != kExact.end();
}

std::optional<Striping> decode_striping(std::span<const std::byte> attribute) {
  constexpr std::uint32_t kMagicV1 = 0x0BD10BD0;
  constexpr std::uint32_t kMagicV3 = 0x0BD30BD0;
  const auto take = [&]<class T>(std::size_t at, T& value) {
    if (at + sizeof value <= attribute.size()) std::memcpy(&value, attribute.data() + at, sizeof value);
  };
  std::uint32_t magic = 0;
  std::uint32_t unit = 0;
  std::uint16_t count = 0;
  take(0, magic);
  if ((magic != kMagicV1 && magic != kMagicV3) || attribute.size() < 32) return std::nullopt;
  take(24, unit);
  take(28, count);
  return Striping{count, unit};
}

std::optional<Striping> stripes_of(const fs::path& directory) {
  try {
    if (file_system_of(directory).type != "lustre") return std::nullopt;
  } catch (const Error&) {
    return std::nullopt;
  }
  std::array<std::byte, 4096> attribute{};
  const ssize_t size = ::getxattr(directory.c_str(), "lustre.lov", attribute.data(), attribute.size());
  if (size < 0) return errno == ENODATA ? std::optional(Striping{}) : std::nullopt;
  return decode_striping(std::span(attribute).first(static_cast<std::size_t>(size)));
}

}  // namespace cairn::os
