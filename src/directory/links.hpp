// Which symbolic links of a checkpoint directory are read through.
//
// A checkpoint that came from elsewhere may have links to anything that its reader may read: `convert` would copy it. So a
// link is followed only to where the checkpoint lies: into its own directory, or, from a snapshot of a Hugging Face cache,
// into the blobs of the same model (models--<name>/snapshots/<revision>/<file> -> ../../blobs/<hash>). The directory itself
// may be named through links: the user named it.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "os/file.hpp"

namespace cairn::checkpoint {

enum class Links { kInside, kFollow };

inline Links links_of(bool follow) { return follow ? Links::kFollow : Links::kInside; }

/// Rank-local. Throws Error(kFormat), naming link, target and what to do, for the first of `names`, which are relative to
/// `directory` and exist, that leads out of it. With kFollow nothing is looked at.
void check_links(const std::filesystem::path& directory, const std::vector<std::string>& names, Links links);

/// The same for the entries of the directory that are links to regular files. Links to directories are never followed.
void check_links(const std::filesystem::path& directory, const std::vector<os::DirectoryEntry>& entries, Links links);

}  // namespace cairn::checkpoint
