// Which file system holds a path, by the magic numbers of statfs(2) and of the vendors.
#include <fmt/core.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <string_view>

#include "os/file.hpp"
#include "os/system_error.hpp"

namespace cairn::os {
namespace {

struct Magic {
  std::uint32_t number;
  std::string_view name;
};

/// Kernel: linux/magic.h. Lustre, GPFS: as ROMIO tells them apart (ad_fstype.c). BeeGFS: as coreutils names "fhgfs".
constexpr std::array<Magic, 17> kMagics = {{
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
}};

std::string name_of(std::uint32_t number) {
  for (const Magic& magic : kMagics) {
    if (magic.number == number) return std::string(magic.name);
  }
  return fmt::format("0x{:x}", number);
}

}  // namespace

bool FileSystemInfo::is_local() const {
  constexpr std::array<std::string_view, 7> kLocal = {"ext4", "xfs", "btrfs", "zfs", "overlay", "tmpfs", "ramfs"};
  return std::find(kLocal.begin(), kLocal.end(), type) != kLocal.end();
}

FileSystemInfo file_system_of(const std::filesystem::path& path) {
  struct statfs type {};
  if (::statfs(path.c_str(), &type) != 0) internal::throw_system_error("statfs of", path, errno);
  struct statvfs space {};  // statfs leaves open what unit its block counts have
  if (::statvfs(path.c_str(), &space) != 0) internal::throw_system_error("statvfs of", path, errno);
  FileSystemInfo info;
  info.type = name_of(static_cast<std::uint32_t>(type.f_type));
  info.free_bytes = static_cast<std::uint64_t>(space.f_bavail) * space.f_frsize;
  info.block_bytes = space.f_bsize;
  return info;
}

}  // namespace cairn::os
