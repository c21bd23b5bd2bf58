// Files of frozen tensors that a save takes from an earlier checkpoint of its root (Options::reuse).
//
// Steps, after commit.begin; each named step is a fault point:
//
//   1  reuse.find     rank 0 finds the earlier checkpoint, and its files of the sections and sizes that will be written
//   2  (digests)      all ranks digest the files for which there is one (FileWriter), and combine the digests
//   3  reuse.take     rank 0 clones or links the files with the same digest into the directory of the commit; clones
//                     are synced
//   4  (data)         the other files are written; the commit goes on as ever
//
// A failure in any step leaves what a save always leaves: a partial directory. The earlier checkpoint is only read, but
// for its write permission, which hard links take away.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "cairn/options.hpp"
#include "cairn/report.hpp"
#include "checkpoint/content_digests.hpp"
#include "checkpoint/save_plan.hpp"
#include "comm/communicator.hpp"
#include "format/manifest.hpp"

namespace cairn::checkpoint {

/// Files of an earlier checkpoint, and those files of the layout that may have the same content.
struct Earlier {
  std::optional<std::uint64_t> step;        ///< the same on all ranks; empty: there is no file to take
  std::vector<bool> may_be_equal;           ///< by file of the layout; the same on all ranks
  std::filesystem::path directory;          ///< on rank 0, as is the rest
  std::vector<format::ManifestFile> files;  ///< with a digest
};

/// Whether a save with these options and this engine takes files from earlier checkpoints.
bool can_reuse(const Options& options, const SavePlan& plan);

/// Collective: step 1. `root`: on rank 0, the root of the save. `part`: of the save, whose earlier checkpoint then has
/// the same part. A root that cannot be read has nothing to take, with a warning in `report`.
Earlier find_earlier(comm::Communicator& communicator, const Options& options, const SavePlan& plan,
                     const std::filesystem::path& root, const std::optional<format::Part>& part, Report& report);

/// Collective: step 3, with the combined digests. Returns by file whether it is in `partial`, and adds to the report.
std::vector<bool> take_files(comm::Communicator& communicator, const Options& options, const SavePlan& plan,
                             const Earlier& earlier, const ContentDigests& digests,
                             const std::filesystem::path& partial, Report& report);

}  // namespace cairn::checkpoint
