// The pickles that PaddlePaddle's trainers write with unified_checkpoint off, and the ranks that wrote them.
//
// "model_state.tp00_pp01.pdparams" has a rank's slices of the weights, "optimizer.tp00_pp01_shard00.pdopt" its state;
// an adapter is in "lora_model_state.pdparams" and the like. A single process, or data parallelism alone, leaves ranks
// out of the names. Weights may be in numbered pieces, which an index lists ("model_state.pdparams.index.json").
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "interop/paddle/rank_files.hpp"
#include "interop/reading.hpp"

namespace cairn::interop {

struct LegacyName {
  RankName rank;             ///< set: "model_state", "lora_model_state", "optimizer"
  std::string_view section;  ///< "model", "adapter", "optimizer"
  std::string_view suffix;   ///< ".pdparams", ".pdopt"
  std::uint32_t pieces = 0;  ///< number of pieces; this file is piece rank.piece; 0: not in pieces
};

/// The parts of a legacy file's name; nothing for any other name.
std::optional<LegacyName> parse_legacy_name(std::string_view file);

/// Whether the file is an index of pieces of weights, by its name.
bool is_legacy_index_name(std::string_view file);

enum class LegacyKind {
  kNone,       ///< there are no legacy files, or safetensors files take precedence
  kPickles,    ///< weights are in pickles, or missing
  kOptimizer,  ///< only the state is in pickles, and the weights are safetensors files: PaddleFormers
};

LegacyKind legacy_kind(Reading& reading);

/// Files with names of the legacy form.
std::vector<std::string> legacy_file_names(const Reading& reading);

/// Files of the legacy form that are not read, because the directory has a unified checkpoint.
std::vector<std::string> ignored_legacy_files(Reading& reading);

/// The files of all ranks. RankFile::header and RankFile::number are not set.
struct LegacyFiles {
  std::vector<RankFiles> weights;  ///< one for each set
  RankFiles optimizer;             ///< no files: no state was saved

  /// "tp=2,pp=2", from the names.
  [[nodiscard]] std::string parallel() const;
};

/// The name of the index that lists the pieces of a rank's weights.
std::string index_name_of(const RankFiles& weights, const Rank& rank);

/// Throws Error(kNotFound), naming the missing files, and kFormat for files of two saves or of kinds that are not read.
LegacyFiles legacy_files(Reading& reading);

}  // namespace cairn::interop
