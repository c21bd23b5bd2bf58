#include "directory/links.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <optional>
#include <system_error>

#include "base/units.hpp"
#include "cairn/error.hpp"

namespace cairn::checkpoint {
namespace {

namespace fs = std::filesystem;

bool is_inside(const fs::path& path, const fs::path& directory) {
  return std::mismatch(directory.begin(), directory.end(), path.begin(), path.end()).first == directory.end();
}

/// "…/models--a--b/blobs" for "…/models--a--b/snapshots/<revision>" and what is below.
std::optional<fs::path> blobs_of(const fs::path& directory) {
  fs::path before;
  for (fs::path at = directory; at.has_relative_path(); at = at.parent_path()) {
    if (before.filename() == "snapshots" && at.filename().string().starts_with("models--")) return at / "blobs";
    before = at;
  }
  return std::nullopt;
}

}  // namespace

void check_links(const fs::path& directory, const std::vector<std::string>& names, Links links) {
  if (links == Links::kFollow || names.empty()) return;
  std::error_code failed;
  const fs::path real = fs::canonical(directory, failed);
  const std::optional<fs::path> blobs = blobs_of(real);
  for (const std::string& name : names) {
    const fs::path target = failed ? fs::path() : fs::canonical(directory / name, failed);
    if (failed) {
      throw Error(ErrorKind::kIo, fmt::format("cannot follow '{}': {}",
                                              base::printable((directory / name).string(), 1000), failed.message()));
    }
    if (is_inside(target, real) || (blobs && is_inside(target, *blobs))) continue;
    throw Error(
        ErrorKind::kFormat,
        fmt::format("'{}' is a link to '{}', outside of the checkpoint; give --follow-links "
                    "(Options::follow_links) when it may be read",
                    base::printable((directory / name).string(), 1000), base::printable(target.string(), 1000)));
  }
}

void check_links(const fs::path& directory, const std::vector<os::DirectoryEntry>& entries, Links links) {
  std::vector<std::string> names;
  for (const os::DirectoryEntry& entry : entries) {
    if (entry.is_link && entry.is_regular) names.push_back(entry.name);
  }
  check_links(directory, names, links);
}

}  // namespace cairn::checkpoint
