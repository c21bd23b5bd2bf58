// Lustre striping of new files: the number of storage targets, and the size of the pieces.
//
// A file's striping is fixed before its first byte. Striping is set here, not through MPI-IO, whose Lustre driver many
// builds lack. On other file systems nothing is set.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "os/file.hpp"

namespace cairn::os {

struct Striping {
  static constexpr std::uint32_t kAllTargets = 0xFFFF;
  std::uint32_t count = 0;       ///< storage targets; 0: the directory's setting; kAllTargets: all of them
  std::uint64_t unit_bytes = 0;  ///< a multiple of 64 KiB below 4 GiB; 0: the directory's setting

  [[nodiscard]] bool is_set() const { return count != 0 || unit_bytes != 0; }
};

/// The striping in the MPI-IO hints "striping_factor" (-1: all targets) and "striping_unit" (bytes). Throws
/// Error(kUsage) for invalid values.
Striping striping_of_hints(const std::map<std::string, std::string>& hints);

/// The argument of Lustre's LL_IOC_LOV_SETSTRIPE: struct lov_user_md_v1 of lustre_user.h, 32 bytes.
std::vector<std::byte> encode_striping(const Striping& striping);

/// Creates a new file (as OpenMode::kCreateNew), striped if `striping` is set and the file system is Lustre. If Lustre
/// refuses the striping, removes the file and throws Error(kIo) with the reason.
File create_striped(const std::filesystem::path& path, const Striping& striping);

}  // namespace cairn::os
