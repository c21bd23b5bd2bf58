// Files that each hold one rank's part of a PaddlePaddle checkpoint, and which rank that is.
//
// With ignore_merge_optimizer the name says it: "optimizer.tp00_pp01_shard03.safetensors"; with data parallelism
// alone there is nothing to say ("optimizer.safetensors"). So it is of the pickles of legacy saves (legacy_files.hpp).
// Merged files of sharding v2 in PaddleFormers hold flat slices of ranks as well; there the number of a file stands for
// the rank, and those of sharding are the slowest.
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

/// The parallelisms that names speak of, in the order in which they do.
enum Axis : std::size_t { kTensor, kPipeline, kSharding, kExpert, kAxes };

using Rank = std::array<std::uint32_t, kAxes>;

struct RankName {
  std::string set;                                        ///< "optimizer", "master_weights"
  std::array<std::optional<std::uint32_t>, kAxes> ranks;  ///< nothing: the name does not speak of it
  std::uint32_t piece = 0;                                ///< as of RankFile
};

/// Nothing for other names.
std::optional<RankName> parse_rank_name(std::string_view file);

/// Takes the ranks of "tp00_pp01" over into `out`; false for a text that is not made of ranks.
bool parse_ranks(std::string_view text, RankName& out);

struct RankFile {
  std::string name;
  std::uint32_t number = 0;  ///< as Reading::number()
  const format::SafetensorsHeader* header = nullptr;
  Rank rank{};
  std::uint32_t piece = 0;  ///< of the rank's state; 0: it is in one file
};

/// The files of a set: of every rank one, by rank.
struct RankFiles {
  std::string set;
  std::string section;
  std::vector<RankFile> files;
  Rank degrees{1, 1, 1, 1};  ///< ranks along each axis
  std::uint32_t pieces = 0;  ///< of each rank's state; 0: it is in one file
  bool is_numbered = false;  ///< merged files: along kSharding are all files, which may be of other axes as well
  std::string_view suffix = kDataSuffix;

  /// "optimizer.tp00_shard01.safetensors".
  [[nodiscard]] std::string name_of(const Rank& rank, std::uint32_t piece = 0) const;
  /// "tp=2,pp=4": what names say.
  [[nodiscard]] std::string parallel() const;

  std::array<bool, kAxes> named{};  ///< which axes names speak of
};

/// Two files of which the names speak of other parallelisms.
Error of_another_save(const std::string& file, const std::string& other, const Reading& reading);

/// Adds a file of that name to its set; `file.rank` and `file.piece` are set here. Throws Error(kFormat) where those that
/// are in the set are of another save.
void add_rank_file(const RankName& name, RankFile file, RankFiles& set, const Reading& reading);

/// Sorts the files of each set by rank, and gives all sets the degrees that the names of all of them tell.
void find_degrees(std::span<RankFiles> sets);

/// Throws Error(kNotFound) that names the files of ranks that are missing. Requires: find_degrees() was called. `why` says
/// why there must be one of each rank.
void check_ranks(const RankFiles& set, std::string_view why, const Reading& reading);

/// Of unmerged optimizers, by set. Throws Error(kNotFound) naming the files that are missing, kFormat for files of two
/// saves.
std::vector<RankFiles> unmerged_files(Reading& reading);

/// The files of a merged set, in the order of their names. check_numbers() says whether these are all.
RankFiles merged_files(const DataSet& set, const Reading& reading);

/// Throws Error(kNotFound) naming a file of merged ones that is missing, kFormat for one that bears no number.
void check_numbers(const RankFiles& files, const Reading& reading);

}  // namespace cairn::interop
