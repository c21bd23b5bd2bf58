// Files that each hold one rank's part of a PaddlePaddle checkpoint, and the ranks that wrote them.
//
// With ignore_merge_optimizer the name has the rank: "optimizer.tp00_pp01_shard03.safetensors".
// With data parallelism alone the name has no rank ("optimizer.safetensors"). The pickles of legacy saves follow
// the same rule (legacy_files.hpp). In PaddleFormers, merged files of sharding v2 also hold flat slices of ranks; there
// a file's number stands for the rank, and the ranks of sharding vary slowest.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "interop/data_set.hpp"
#include "interop/file_names.hpp"
#include "interop/reading.hpp"

namespace cairn::interop {

/// The axes of parallelism, in the order in which file names have them.
enum Axis : std::size_t { kTensor, kPipeline, kSharding, kExpert, kAxes };

using Rank = std::array<std::uint32_t, kAxes>;

struct RankName {
  std::string set;                                        ///< "optimizer", "master_weights"
  std::array<std::optional<std::uint32_t>, kAxes> ranks;  ///< nothing: the name does not include the axis
  std::uint32_t piece = 0;                                ///< as in RankFile
};

/// The parts of the name of a rank's file; nothing for any other name.
std::optional<RankName> parse_rank_name(std::string_view file);

/// Reads the ranks of "tp00_pp01" into `out`; false if `text` has a different form.
bool parse_ranks(std::string_view text, RankName& out);

struct RankFile {
  std::string name;
  std::uint32_t number = 0;  ///< as Reading::number()
  const format::SafetensorsHeader* header = nullptr;
  Rank rank{};
  std::uint32_t piece = 0;  ///< piece of the rank's state; 0: the state is in one file
};

/// The files of a set, one or several pieces for every rank, sorted by rank.
struct RankFiles {
  std::string set;
  std::string section;
  std::vector<RankFile> files;
  Rank degrees{1, 1, 1, 1};  ///< ranks along each axis
  std::uint32_t pieces = 0;  ///< number of files of each rank's state; 0: one
  bool is_numbered = false;  ///< merged files: ranks along axes other than sharding are unknown
  std::string_view suffix = kDataSuffix;

  /// "optimizer.tp00_shard01.safetensors".
  [[nodiscard]] std::string name_of(const Rank& rank, std::uint32_t piece = 0) const;
  /// "tp=2,pp=4", from the names.
  [[nodiscard]] std::string parallel() const;

  std::array<bool, kAxes> named{};  ///< the axes that file names include
};

/// The error for two files whose names include different axes.
Error of_another_save(const std::string& file, const std::string& other, const Reading& reading);

/// Adds a file of that name to its set, and sets `file.rank` and `file.piece`. Throws Error(kFormat)
/// if the set has files of another save.
void add_rank_file(const RankName& name, RankFile file, RankFiles& set, const Reading& reading);

/// Sorts each set's files by rank, and sets the degrees: shared by all sets, but 1 along axes that a set does not name.
void find_degrees(std::span<RankFiles> sets);

/// Throws Error(kNotFound), naming the missing files of ranks. Requires: find_degrees() was called.
/// `why`: the reason why each rank must have a file.
void check_ranks(const RankFiles& set, std::string_view why, const Reading& reading);

/// The unmerged state, by set. Throws Error(kNotFound), naming missing files, and kFormat for files of two saves.
std::vector<RankFiles> unmerged_files(Reading& reading);

/// The files of a merged set, in the order of their numbers. check_numbers() checks that no file is missing.
RankFiles merged_files(const DataSet& set, const Reading& reading);

/// Throws Error(kNotFound), naming a missing merged file, and kFormat for a file without a number.
void check_numbers(const RankFiles& files, const Reading& reading);

}  // namespace cairn::interop
