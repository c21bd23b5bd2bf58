#include "interop/paddle/legacy_files.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "base/digits.hpp"
#include "base/text.hpp"
#include "interop/file_names.hpp"
#include "interop/paddle/config.hpp"
#include "interop/paddle/signals.hpp"

namespace cairn::interop {
namespace {

struct LegacySet {
  std::string_view name;
  std::string_view section;
  std::string_view suffix;
};

constexpr std::string_view kWeights = ".pdparams";
constexpr std::array<LegacySet, 6> kSets = {{{"model_state", "model", kWeights},
                                             {"lora_model_state", "adapter", kWeights},
                                             {"prefix_model_state", "adapter", kWeights},
                                             {"vera_model_state", "adapter", kWeights},
                                             {"lokr_model_state", "adapter", kWeights},
                                             {"optimizer", "optimizer", ".pdopt"}}};
constexpr const char* kConfig = "config.json";
constexpr std::uint64_t kMostPieces = 1 << 20;  // names may be malicious
constexpr std::uint64_t kMostRanks = 1 << 20;
constexpr std::string_view kWhy = "each rank wrote one";

std::vector<std::pair<std::string, LegacyName>> names_in(const Reading& reading) {
  std::vector<std::pair<std::string, LegacyName>> out;
  for (const auto& [file, size] : reading.directory().others) {
    if (const auto name = parse_legacy_name(file)) out.emplace_back(file, *name);
  }
  return out;
}

bool is_weights(const LegacyName& name) { return name.suffix == kWeights; }

/// Whether a PaddlePaddle trainer would resume from a unified checkpoint: it looks for the index of weights or masters.
bool has_unified(Reading& reading) {
  return std::ranges::any_of(reading.sets(), [](const auto& item) {
    const DataSet& set = item.second;
    return !set.index_file.empty() &&
           (set.section == "model" || set.section == "adapter" || set.name == "master_weights");
  });
}

bool has_section(Reading& reading, std::string_view section) {
  return std::ranges::any_of(reading.sets(), [&](const auto& item) { return item.second.section == section; });
}

/// The number of tensor-parallel ranks in config.json; 1 if it has none.
std::uint32_t degree_of_config(const Reading& reading) {
  const base::Json config = config_of(reading);
  const char* key = "tensor_parallel_degree";
  if (!config.contains(key)) key = "tensor_model_parallel_size";  // PaddleFormers
  return static_cast<std::uint32_t>(std::min(size_of_config(config, key).value_or(1), kMostRanks));
}

/// Takes the number of ranks from config.json, since the last rank's files may be missing. Refuses files of two saves.
void apply_degree(RankFiles& set, std::uint32_t degree, const Reading& reading) {
  if (!set.named[kTensor] || degree < 2) return;
  if (set.degrees[kTensor] > degree) {
    throw reading.error(ErrorKind::kFormat, set.files.back().name,
                        fmt::format("is of another save than {}, which says that there were {} tensor-parallel ranks; "
                                    "move the files of one of the two away",
                                    kConfig, degree));
  }
  set.degrees[kTensor] = degree;
}

/// Names of states and weights must have the same axes, except that only states are sharded; adapters may be merged.
void check_axes(const RankFiles& weights, const RankFiles& optimizer, const Reading& reading) {
  if (weights.named[kSharding]) {
    throw reading.error(
        ErrorKind::kFormat, weights.files.front().name,
        "has the weights of one rank of sharding (save_sharding_stage1_model), which are not read; save "
        "again without it");
  }
  if (optimizer.files.empty()) return;
  const bool is_same = weights.named[kPipeline] == optimizer.named[kPipeline] &&
                       weights.named[kExpert] == optimizer.named[kExpert] &&
                       (optimizer.named[kTensor] || !weights.named[kTensor]);
  if (is_same) return;
  throw of_another_save(optimizer.files.front().name, weights.files.front().name, reading);
}

/// Every rank that has written its state leaves a signal file.
void check_signals(const RankFiles& optimizer, const Reading& reading) {
  const auto signals = static_cast<std::size_t>(std::ranges::count_if(reading.directory().others, [](const auto& file) {
    const auto signal = parse_signal_name(file.first);
    return signal && signal->word.empty();
  }));
  if (signals <= optimizer.files.size()) return;
  throw Error(ErrorKind::kNotFound,
              fmt::format("{}: {} that ranks have saved their optimizer, and {} ({}): files of ranks are missing{}",
                          reading.place(), base::counted(signals, "signal file says", "signal files say"),
                          base::counted(optimizer.files.size(), "file is here", "files are here"),
                          shown(optimizer.name_of({})), reading.looked()));
}

/// Refuses PaddleFormers' files of single ranks' weights, which may be transposed.
void refuse_weights_of_ranks(Reading& reading) {
  constexpr std::string_view kStart = "model.";
  for (const auto& [name, set] : reading.sets()) {
    RankName ranks;
    if (!name.starts_with(kStart) || set.files.empty()) continue;
    if (!parse_ranks(std::string_view(name).substr(kStart.size()), ranks)) continue;
    throw reading.error(ErrorKind::kFormat, set.files.front(),
                        "has what one rank held of the weights, which is not read; save again as a unified checkpoint");
  }
}

}  // namespace

std::optional<LegacyName> parse_legacy_name(std::string_view file) {
  for (const LegacySet& set : kSets) {
    if (!file.starts_with(set.name) || !file.ends_with(set.suffix) ||
        file.size() < set.name.size() + set.suffix.size()) {
      continue;
    }
    const DataName name = parse_data_name(file.substr(0, file.size() - set.suffix.size()));
    LegacyName out{{std::string(set.name), {}, 0}, set.section, set.suffix, 0};
    if (name.numbered) {
      if (set.suffix != kWeights || name.number == 0 || name.number > name.count || name.count > kMostPieces) continue;
      out.rank.piece = static_cast<std::uint32_t>(name.number);
      out.pieces = static_cast<std::uint32_t>(name.count);
    }
    const std::string_view ranks = std::string_view(name.set).substr(set.name.size());
    if (ranks.empty()) return out;
    if (ranks.front() == '.' && parse_ranks(ranks.substr(1), out.rank)) return out;
  }
  return std::nullopt;
}

bool is_legacy_index_name(std::string_view file) {
  constexpr std::string_view kMiddle = ".index";
  constexpr std::string_view kEnd = ".json";
  return file.ends_with(kEnd) && std::ranges::any_of(kSets, [&](const LegacySet& set) {
           if (set.suffix != kWeights || !file.starts_with(set.name)) return false;
           const std::string_view rest = file.substr(set.name.size());
           return rest.starts_with(std::string(set.suffix) + std::string(kMiddle));
         });
}

LegacyKind legacy_kind(Reading& reading) {
  const auto names = names_in(reading);
  if (names.empty() || has_unified(reading)) return LegacyKind::kNone;
  const auto is_state = [](const auto& item) { return !is_weights(item.second); };
  const bool has_state = std::ranges::any_of(names, is_state);
  const bool has_weights = !std::ranges::all_of(names, is_state);
  const bool is_beside = has_section(reading, "model") || has_section(reading, "adapter");
  if (!is_beside) return LegacyKind::kPickles;
  // Without state the directory may not be from a training run: it has weights in two forms, one of them safetensors.
  if (!has_state) return LegacyKind::kNone;
  return has_weights ? LegacyKind::kPickles : LegacyKind::kOptimizer;
}

std::vector<std::string> legacy_file_names(const Reading& reading) {
  std::vector<std::string> out;
  for (const auto& [file, name] : names_in(reading)) out.push_back(file);
  return out;
}

std::vector<std::string> ignored_legacy_files(Reading& reading) {
  return has_unified(reading) ? legacy_file_names(reading) : std::vector<std::string>();
}

std::string LegacyFiles::parallel() const {
  return optimizer.files.empty() ? weights.front().parallel() : optimizer.parallel();
}

std::string index_name_of(const RankFiles& weights, const Rank& rank) {
  // "model_state.pdparams.index.json", and for a rank "model_state.pdparams.index.tp00.json".
  RankFiles plain;
  plain.set = weights.set;
  plain.named = weights.named;
  plain.suffix = {};
  const std::string ranks = plain.name_of(rank).substr(weights.set.size());
  return weights.set + std::string(weights.suffix) + ".index" + ranks + ".json";
}

LegacyFiles legacy_files(Reading& reading) {
  std::map<std::string, RankFiles> sets;
  for (const auto& [file, name] : names_in(reading)) {
    RankFiles& set = sets[name.rank.set];
    set.section = name.section;
    set.suffix = name.suffix;
    if (set.files.empty()) {
      set.pieces = name.pieces;
    } else if (set.pieces != name.pieces) {
      throw reading.error(ErrorKind::kFormat, file,
                          fmt::format("belongs to another save than {}, as their numbers say; move one of the two away",
                                      shown(set.files.front().name)));
    }
    add_rank_file(name.rank, {file, 0, nullptr, {}, 0}, set, reading);
  }
  std::vector<RankFiles> all;
  for (auto& [name, set] : sets) all.push_back(std::move(set));
  find_degrees(all);
  LegacyFiles out;
  const std::uint32_t degree = degree_of_config(reading);
  for (RankFiles& set : all) {
    apply_degree(set, degree, reading);
    check_ranks(set, kWhy, reading);
    if (set.section == "optimizer") {
      out.optimizer = std::move(set);
    } else {
      out.weights.push_back(std::move(set));
    }
  }
  if (out.weights.empty()) {
    refuse_weights_of_ranks(reading);
    throw Error(
        ErrorKind::kNotFound,
        fmt::format("{}: the file is missing; without the weights nothing says which parameters the state in {} "
                    "is of{}",
                    reading.path_of("model_state" + std::string(kWeights)), shown(out.optimizer.files.front().name),
                    reading.looked()));
  }
  for (const RankFiles& weights : out.weights) check_axes(weights, out.optimizer, reading);
  if (!out.optimizer.files.empty()) check_signals(out.optimizer, reading);
  return out;
}

}  // namespace cairn::interop
