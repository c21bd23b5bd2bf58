// Decides whether a path is a checkpoint or a root of checkpoints.
#include "cli/resolve.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "base/bytes.hpp"
#include "base/counted.hpp"
#include "base/units.hpp"
#include "cairn/error.hpp"
#include "comm/agree.hpp"
#include "directory/root.hpp"
#include "os/file.hpp"

namespace cairn::cli {
namespace {

constexpr std::string_view kDirectoryPrefix = "checkpoint-";

bool is_root(const std::filesystem::path& path) {
  bool has_checkpoints = false;
  for (const os::DirectoryEntry& entry : os::list_directory(path)) {
    if (entry.is_directory) {
      has_checkpoints = has_checkpoints || entry.name.starts_with(kDirectoryPrefix);
    } else if (entry.name.ends_with(".safetensors") || entry.name == checkpoint::kManifestFile) {
      return false;
    }
  }
  return has_checkpoints;
}

std::string name_of(const checkpoint::RootEntry& entry) { return base::printable(entry.directory.filename().string()); }

ResolvedPath newest_of(const std::filesystem::path& root) {
  std::vector<checkpoint::RootEntry> entries = checkpoint::list_root(root);
  const auto step = checkpoint::newest_step(root, entries);
  const std::size_t partial = std::erase_if(entries, [](const checkpoint::RootEntry& entry) { return entry.partial; });
  std::sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) { return a.step > b.step; });
  const auto newest = std::find_if(entries.begin(), entries.end(),
                                   [&](const auto& entry) { return entry.complete && entry.step == step; });
  if (newest == entries.end()) {
    const std::string why = !entries.empty()
                                ? fmt::format("the newest, {}: {}", name_of(entries.front()), entries.front().problem)
                            : partial != 0 ? fmt::format("only {} partial", partial)
                                           : "no directory is called checkpoint-<step>";
    throw Error(ErrorKind::kNotFound, fmt::format("no complete checkpoint under '{}': {}; name a checkpoint directory",
                                                  base::printable(root.string()), why));
  }
  ResolvedPath out{newest->directory, {}};
  for (auto entry = entries.begin(); entry != newest; ++entry) {
    if (entry->complete && !entry->is_void) continue;  // people edited the file that names the latest
    out.notes.push_back(fmt::format("{} is {}: {}", name_of(*entry),
                                    entry->complete ? "of a higher step" : "newer but not complete", entry->problem));
  }
  out.notes.push_back(fmt::format("'{}' is a root of {}; this is {}, the newest complete one",
                                  base::printable(root.string()), base::counted(entries.size(), "checkpoint"),
                                  name_of(*newest)));
  return out;
}

}  // namespace

ResolvedPath resolve_here(const std::filesystem::path& path) {
  if (path.empty()) throw Error(ErrorKind::kUsage, "the path is empty");
  std::error_code failed;
  const std::filesystem::file_status status = std::filesystem::status(path, failed);
  if (status.type() == std::filesystem::file_type::not_found) {
    throw Error(ErrorKind::kNotFound, fmt::format("'{}' does not exist", base::printable(path.string())));
  }
  if (failed) {
    throw Error(ErrorKind::kIo,
                fmt::format("cannot look at '{}': {}", base::printable(path.string()), failed.message()));
  }
  if (!std::filesystem::is_directory(status) || !is_root(path)) return {path, {}};
  return newest_of(path);
}

ResolvedPath resolve(comm::Communicator& communicator, const std::filesystem::path& path) {
  base::Bytes message;
  comm::agree_on_root(communicator, "find checkpoint", 0, [&] {
    const ResolvedPath found = resolve_here(path);
    base::ByteWriter writer;
    writer.text(found.path.string());
    writer.u64(found.notes.size());
    for (const std::string& note : found.notes) writer.text(note);
    message = writer.take();
  });
  communicator.share(message, 0);
  base::ByteReader reader(message);
  ResolvedPath out{reader.text(), {}};
  const std::uint64_t notes = reader.u64();
  for (std::uint64_t n = 0; n < notes; ++n) out.notes.push_back(reader.text());
  return out;
}

}  // namespace cairn::cli
