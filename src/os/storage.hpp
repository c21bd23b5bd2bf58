// Facts about the storage under a directory, before anything is written there: permission, space, inodes, quotas,
// Lustre stripes.
//
// Nothing here throws for the storage: a fact that the system does not tell is missing, and a question costs one or two
// system calls. None goes through the fault hooks, since none can fail a call.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "os/access.hpp"
#include "os/striping.hpp"

namespace cairn::os {

/// The rest under a quota. At least one of the two numbers is set.
struct QuotaLeft {
  std::string of;  ///< "user 1000", "group 100", "project 7"
  std::optional<std::uint64_t> bytes;
  std::optional<std::uint64_t> files;
};

/// The reason why this process may not make files in a directory, in words for "<directory> <text>".
struct NoAccess {
  int error = 0;       ///< EACCES, EROFS or EPERM (immutable, append-only); 0: nothing is known against it
  std::string why;     ///< "cannot be written by this user (uid 1000)"
  std::string remedy;  ///< "have its permissions changed ..."
};

/// Rank-local.
NoAccess access_problem(const std::filesystem::path& directory);
/// Rank-local: throws Error(kIo) with the errno if there is a problem.
void check_access(const std::filesystem::path& directory);

struct StorageFacts {
  std::string type;                         ///< as FileSystemInfo::type; empty: unknown
  std::optional<std::uint64_t> free_bytes;  ///< for this user
  std::optional<std::uint64_t> free_files;  ///< inodes, for this user
  std::vector<QuotaLeft> quotas;
  std::optional<std::uint64_t> largest_file_bytes;  ///< of the file system, where it is below anything that is saved
};

/// Rank-local. `access`: of the files that will be made, whose group's quota counts.
StorageFacts storage_facts(const std::filesystem::path& directory, const Access& access = {});

/// Whether free space is what can be written: not so on file systems that compress or that pass on other figures.
bool tells_space_exactly(const StorageFacts& facts);

/// The result of a quota's question to the kernel: limits in bytes and inodes, 0: none.
struct QuotaRecord {
  std::uint64_t hard_bytes = 0;
  std::uint64_t soft_bytes = 0;
  std::uint64_t used_bytes = 0;
  std::int64_t soft_bytes_end_s = 0;  ///< Unix time from which the soft limit is a hard one; 0: not above it
  std::uint64_t hard_files = 0;
  std::uint64_t soft_files = 0;
  std::uint64_t used_files = 0;
  std::int64_t soft_files_end_s = 0;
};
/// Nothing if there is no limit.
std::optional<QuotaLeft> quota_left(const std::string& of, const QuotaRecord& record, std::int64_t now_s);

/// Rank-local: the striping that new files in a directory of Lustre get. Nothing on other file systems, or if it varies
/// with the size of the file (progressive layouts).
std::optional<Striping> stripes_of(const std::filesystem::path& directory);
/// The striping in Lustre's attribute "lustre.lov": struct lov_user_md_v1 or _v3.
std::optional<Striping> decode_striping(std::span<const std::byte> attribute);

}  // namespace cairn::os
