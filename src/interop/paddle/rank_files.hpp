// Files that each hold one rank's part of PaddlePaddle's optimizer state, and which rank that is.
//
// With ignore_merge_optimizer the name says it: "optimizer.tp00_pp01_shard03.safetensors"; with data parallelism
// alone there is nothing to say ("optimizer.safetensors"). Merged files of sharding v2 in PaddleFormers hold flat
// slices of ranks as well; there the number of a file stands for the rank, and those of sharding are the slowest.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "interop/data_set.hpp"
#include "interop/reading.hpp"

namespace cairn::interop {

/// The parallelisms that names speak of, in the order in which they do.
enum Axis : std::size_t { kTensor, kPipeline, kSharding, kExpert, kAxes };

struct RankName {
  std::string set;                                        ///< "optimizer", "master_weights"
  std::array<std::optional<std::uint32_t>, kAxes> ranks;  ///< nothing: the name does not speak of it
  std::uint32_t piece = 0;                                ///< as of RankFile
};

/// Nothing for other names.
std::optional<RankName> parse_rank_name(std::string_view file);

struct RankFile {
  std::string name;
  std::uint32_t number = 0;  ///< as Reading::number()
  const format::SafetensorsHeader* header = nullptr;
  std::array<std::uint32_t, kAxes> rank{};
  std::uint32_t piece = 0;  ///< of the rank's state; 0: it is in one file
};

/// The files of a set: of every rank one, by rank.
struct RankFiles {
  std::string set;
  std::string section;
  std::vector<RankFile> files;
  std::array<std::uint32_t, kAxes> degrees{1, 1, 1, 1};  ///< ranks along each axis
  std::uint32_t pieces = 0;                              ///< of each rank's state; 0: it is in one file
  bool is_numbered = false;  ///< merged files: along kSharding are all files, which may be of other axes as well

  /// "optimizer.tp00_shard01.safetensors".
  [[nodiscard]] std::string name_of(const std::array<std::uint32_t, kAxes>& rank) const;
  /// "tp=2,pp=4": what names say.
  [[nodiscard]] std::string parallel() const;

  std::array<bool, kAxes> named{};  ///< which axes names speak of
};

/// Of unmerged optimizers, by set. Throws Error(kNotFound) naming a file that is missing, kFormat for files of two
/// saves.
std::vector<RankFiles> unmerged_files(Reading& reading);

/// The files of a merged set, in the order of their names. check_numbers() says whether these are all.
RankFiles merged_files(const DataSet& set, const Reading& reading);

/// Throws Error(kNotFound) naming a file of merged ones that is missing, kFormat for one that bears no number.
void check_numbers(const RankFiles& files, const Reading& reading);

}  // namespace cairn::interop
