// Opens a checkpoint directory of any dialect: rank 0 reads manifest, indexes and headers once and shares them.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "cairn/error.hpp"
#include "comm/agree.hpp"
#include "comm/communicator.hpp"
#include "directory/links.hpp"
#include "format/blocks.hpp"
#include "format/manifest.hpp"
#include "format/stored_checkpoint.hpp"
#include "interop/directory.hpp"

namespace cairn::checkpoint {

struct OpenCheckpoint {
  std::filesystem::path directory;
  interop::Dialect dialect = interop::Dialect::kHuggingFace;
  format::StoredCheckpoint stored;
  std::vector<interop::QuantisedMoments> quantised;  ///< moments of which `stored` has the codes and scales
  std::map<std::string, std::string> metadata;       ///< of its data files, as in interop::Recognised
  std::vector<std::string> disputed_metadata;        ///< of which the files disagree
  std::vector<std::string> carried;                  ///< small files that belong to it
  std::vector<std::string> warnings;
  std::optional<format::Manifest> manifest;  ///< nothing: not Cairn's, nothing to verify against
  std::uint32_t manifest_crc32c = 0;         ///< of the manifest's text, when there is one
  std::optional<format::BlockTable> blocks;  ///< nothing for a staging file, though it has a manifest
};

/// Rank-local: reads and checks everything but the tensor data. Throws Error(kNotFound) when the directory does not exist
/// or holds no checkpoint, kFormat or kIntegrity for what is wrong, naming file and tensor. A "*.partial" directory is
/// refused. A step that is being replaced, or whose saver ended while it replaced it, is the old one, with a warning. `path` may also be a single safetensors file, or a
/// staging file (.h5), which StageReader reads. kFormat for a link that leads out of the directory (links.hpp).
OpenCheckpoint open_here(const std::filesystem::path& path, Links links = Links::kInside);

/// Collective: open_here on rank 0, shared.
OpenCheckpoint open_checkpoint(comm::Communicator& communicator, const std::filesystem::path& path,
                               Links links = Links::kInside);

/// Collective: whether the directory has another manifest than that of this checksum, or none.
bool is_manifest_changed(comm::Communicator& communicator, const std::filesystem::path& directory,
                         std::uint32_t manifest_crc32c);

/// Collective, for an Error that all ranks have alike: whether it may come from another checkpoint having taken the place of
/// `opened` since. A load then starts over, at most kLoadAttempts times.
bool was_replaced(comm::Communicator& communicator, const OpenCheckpoint& opened, const Error& error);
inline constexpr int kLoadAttempts = 5;

/// Collective: what `read` gives of the checkpoint, which is opened again when another one takes its place meanwhile.
template <class Read>
auto with_open(comm::Communicator& communicator, const std::filesystem::path& path, Links links, Read read) {
  for (int attempt = 1;; ++attempt) {
    const OpenCheckpoint opened = open_checkpoint(communicator, path, links);
    try {
      return read(opened);
    } catch (const comm::AgreedError& error) {
      if (attempt == kLoadAttempts || !was_replaced(communicator, opened, error)) throw;
    }
  }
}

/// Rank-local: reads and parses the header of one safetensors file.
format::SafetensorsHeader read_header(const std::filesystem::path& path);

}  // namespace cairn::checkpoint
