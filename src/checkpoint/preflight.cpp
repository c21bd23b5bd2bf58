#include "checkpoint/preflight.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cstddef>
#include <optional>

#include "cairn/error.hpp"
#include "format/blocks.hpp"
#include "os/access.hpp"
#include "os/file.hpp"
#include "os/limits.hpp"
#include "os/storage.hpp"

namespace cairn::checkpoint {
namespace {

namespace fs = std::filesystem;
using planning::Obstacle;
using planning::SaveNeeds;

/// The directory in which the save makes the checkpoint, or the nearest that exists.
fs::path place_of(const fs::path& directory) {
  const fs::path parent = (directory.has_filename() ? directory : directory.parent_path()).parent_path();
  return os::nearest_existing(parent.empty() ? "." : parent);
}

[[noreturn]] void refuse(const Obstacle& obstacle, const fs::path& directory) {
  throw Error(ErrorKind::kIo, obstacle.text + "; nothing was written", {obstacle.error, directory.native()});
}

/// The largest of the files to which this rank writes.
const plan::DataFile* largest_written(const SavePlan& plan, int rank) {
  std::vector<std::uint32_t> files = plan.bypass.files();
  for (const plan::Extent& extent : plan.extents->of(rank)) files.push_back(extent.file);
  const plan::DataFile* largest = nullptr;
  for (const std::uint32_t number : files) {
    const plan::DataFile& file = plan.layout.files.at(number);
    if (largest == nullptr || file.size_bytes > largest->size_bytes) largest = &file;
  }
  return largest;
}

void check_sizes(const PlannedSave& planned, int rank, const fs::path& directory) {
  const auto limit = os::largest_file_bytes();
  if (!limit) return;
  for (const SavePlan* const plan : {planned.files, planned.blob_files}) {
    const plan::DataFile* const file = plan == nullptr ? nullptr : largest_written(*plan, rank);
    if (file == nullptr) continue;
    if (const auto found = planning::want_of_size(file->name, file->size_bytes, limit)) refuse(*found, directory);
  }
}

/// On rank 0.
void check_room(const Preflight& look, const fs::path& directory, std::vector<std::string>& warnings) {
  const SaveNeeds needs = needs_of_save(look);
  const FileOptions& files = look.options.files;
  const os::Access access = files.group.empty() ? os::Access{} : os::access_of(files.mode, files.group);
  const auto find = [&] { return planning::want_of_room(needs, os::storage_facts(directory, access), directory); };
  std::optional<Obstacle> found = find();
  const auto make_room = [&](bool prunes) {
    if (!found || !found->is_want_of_room || !look.make_room) return;
    look.make_room(prunes);
    found = find();
  };
  make_room(false);
  if (look.options.retention.prune_before) make_room(true);
  if (!found) return;
  if (found->is_certain) refuse(*found, directory);
  warnings.push_back(found->text + "; the save is tried, since such a file system may store more than it says");
}

}  // namespace

SaveNeeds needs_of_save(const Preflight& look) {
  SaveNeeds needs;
  needs.files = 1;                                     // the directory
  if (look.request.root != nullptr) needs.files += 1;  // the next latest file
  const auto add = [&](const std::string& name, std::uint64_t bytes) {
    needs.bytes += bytes;
    needs.files += 1;
    if (bytes < needs.largest_file_bytes) return;
    needs.largest_file_bytes = bytes;
    needs.largest_file = name;
  };
  format::BlockTableSize table(look.options.files.block_bytes);
  for (const SavePlan* const plan : {look.planned.files, look.planned.blob_files}) {
    if (plan == nullptr) continue;
    for (const plan::DataFile& file : plan->layout.files) {
      add(file.name, file.size_bytes);
      table.add(file.name.size(), file.size_bytes);
    }
  }
  for (const auto& [name, stream] : look.content.carried) add(name, stream.size_bytes);
  add(format::kBlocksFile, table.bytes());
  add(format::kManifestFile, format::encode_manifest(look.content.manifest).size());
  return needs;
}

void refuse_hopeless(comm::Communicator& communicator, const Preflight& look, std::vector<std::string>& warnings) {
  try {
    comm::agree(communicator, "look at the storage", [&] {
      const fs::path directory = place_of(look.request.directory);
      os::check_access(directory);
      check_sizes(look.planned, communicator.rank(), directory);
      if (communicator.rank() == 0) check_room(look, directory, warnings);
    });
  } catch (const comm::AgreedError& error) {
    if (error.kind() != ErrorKind::kIo || error.system_error() == 0) throw;
    throw RefusedSave(error);
  }
}

}  // namespace cairn::checkpoint
