// Recognises Paddle's checkpoints by their signs, and describes them.
#include "interop/paddle/paddle.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <tuple>

#include "base/checked.hpp"
#include "base/digits.hpp"
#include "base/json.hpp"
#include "base/text.hpp"
#include "interop/codings.hpp"
#include "interop/file_names.hpp"
#include "interop/paddle/config.hpp"
#include "interop/paddle/copies.hpp"
#include "interop/paddle/families.hpp"
#include "interop/paddle/files.hpp"
#include "interop/paddle/legacy.hpp"
#include "interop/paddle/legacy_files.hpp"
#include "interop/paddle/moments.hpp"
#include "interop/paddle/rank_files.hpp"
#include "interop/paddle/signals.hpp"
#include "interop/paddle/state_files.hpp"
#include "interop/paddle/ties.hpp"
#include "interop/paddle/unmerged.hpp"
#include "interop/paddle/written.hpp"
#include "interop/state_beside.hpp"

namespace cairn::interop {
namespace {

constexpr const char* kQuantStage = "ckpt_quant_stage";
constexpr const char* kMasterWeights = "master_weights";
constexpr const char* kResumeTimes = "quant_ckpt_resume_times";
constexpr std::array<const char*, 4> kIndexKeys = {kMasterWeights, kQuantStage, kResumeTimes, "optim_shard_num"};

bool has_paddle_keys(const base::Json& object) {
  return std::any_of(kIndexKeys.begin(), kIndexKeys.end(), [&](const char* key) { return object.contains(key); });
}

/// The stage that an index names, such as "O1"; "O0" if it names none.
std::string stage_in(const base::Json& object) {
  const base::Json* stage = object.find(kQuantStage);
  if (stage == nullptr) return "O0";
  if (stage->is_string() && base::is_utf8(stage->text())) return stage->text();
  return stage->dump({.sorted = true, .ascii = true, .dialect = base::JsonDialect::kPython});
}

/// PaddleFormers' save_to_hf transposes the weights of the model's linear layers, and nothing else.
void warn_of_turned_weights(Reading& reading, const Recognised& out) {
  std::map<std::string_view, std::span<const std::uint64_t>> weights;
  for (const format::PlacedTensor& tensor : out.tensors) {
    if (tensor.section == "model" && tensor.shape.size() == 2) weights.emplace(tensor.name, tensor.shape);
  }
  std::set<std::string_view> turned;
  const auto compare = [&](std::string_view name, std::span<const std::uint64_t> shape) {
    const auto weight = weights.find(name);
    if (weight == weights.end() || shape.size() != 2 || shape[0] == shape[1]) return;
    if (weight->second[0] == shape[1] && weight->second[1] == shape[0]) turned.insert(weight->first);
  };
  for (const format::PlacedTensor& tensor : out.tensors) {
    if (tensor.section == kMasterWeights) compare(tensor.name, tensor.shape);
    if (tensor.section != "optimizer") continue;
    if (tensor.name.ends_with(kSecondMoment)) {
      compare(tensor.name.substr(0, tensor.name.size() - kSecondMoment.size()), tensor.shape);
    }
  }
  if (turned.empty()) return;
  reading.warn(
      fmt::format("the model's weights of linear layers are stored the other way round than their master weights "
                  "and moments (save_to_hf): {}, e.g. {}",
                  base::counted(turned.size(), "tensor"), in_quotes(*turned.begin())));
}

std::string codec_of(const std::string& stage) {
  if (stage == "O1") return "O1: 8-bit moments";
  if (stage == "O2") return "O2: 4-bit moments";
  return shown(stage);
}

void take_u16_as_bf16(std::vector<format::PlacedTensor>& tensors, Reading& reading) {
  std::size_t count = 0;
  for (auto& tensor : tensors) {
    if (tensor.dtype != DType::kU16) continue;
    tensor.dtype = DType::kBF16;
    ++count;
  }
  if (count != 0) {
    reading.warn(fmt::format("{} stored as U16 and taken as BF16, which PaddlePaddle writes that way",
                             base::counted(count, "tensor is", "tensors are")));
  }
}

void warn_of_absent_masters(const DataSets& sets, Reading& reading) {
  const auto optimizer = sets.find("optimizer");
  if (optimizer == sets.end() || sets.contains(kMasterWeights) || !optimizer->second.has_map) return;
  const base::Json* promise = optimizer->second.index.extra.find(kMasterWeights);
  if (promise == nullptr || *promise != base::Json(true)) return;
  reading.warn(
      fmt::format("{} says that master weights were saved, but no file holds them: they were left out "
                  "(remove_master_weight) or saved in place of the model (skip_save_model_weight)",
                  shown(optimizer->second.index_file)));
}

}  // namespace

bool is_paddle(const DataSets& sets, const Reading& reading) {
  if (sets.contains("peft_model")) return true;
  const auto is_of_rank = [](const auto& file) { return parse_rank_name(file.first).has_value(); };
  if (std::ranges::any_of(reading.directory().safetensors, is_of_rank)) return true;
  for (const auto& [name, set] : sets) {
    if (has_paddle_keys(set.index.extra)) return true;
  }
  const auto& files = reading.directory().safetensors;
  return std::any_of(files.begin(), files.end(), [](const auto& file) {
    const auto format = file.second.metadata.find("format");
    return format != file.second.metadata.end() && format->second == "np";
  });
}

std::string quant_stage(const DataSet& set) { return stage_in(set.index.extra); }

bool is_quantised_paddle(const DataSet& set) { return quant_stage(set) != "O0"; }

void refuse_scales_without_codec(const DataSets& sets, const Reading& reading) {
  for (const auto& [name, set] : sets) {
    if (set.section != "optimizer" || is_quantised_paddle(set)) continue;
    for (const std::string& file : set.files) {
      if (has_codings(reading.header(file))) continue;
      for (const auto& entry : reading.header(file).tensors) {
        if (!is_scale_name(entry.name)) continue;
        throw reading.error(
            ErrorKind::kFormat, file,
            fmt::format("tensor {} is a scale of quantised moments, but {}", in_quotes(entry.name), kNoCodec));
      }
    }
  }
}

namespace {

constexpr const char* kSplitParamHint =
    "; PaddlePaddle's sharding v2 (split_param) writes flat slices like that, which say "
    "not where they belong: they cannot be read";

/// Sharding v2 leaves the scalar accumulators of a split parameter with both of its owners.
bool is_repeated_accumulator(const format::TensorEntry& copy, const format::TensorEntry& listed) {
  return copy.name.ends_with("_pow_acc_0") && base::try_product(copy.shape) == 1 &&
         std::ranges::equal(copy.shape, listed.shape) && copy.dtype == listed.dtype;
}

/// In O2 the index lists a first moment that no file holds, since its codes share bytes with the second moment's.
std::string_view moment_of_scales(std::string_view scales) {
  if (!scales.ends_with(kScales)) return {};
  const std::string_view moment = scales.substr(0, scales.size() - kScales.size());
  return moment.ends_with(kFirstMoment) ? moment : std::string_view();
}

IndexRules rules_of(const DataSet& set) {
  IndexRules rules{.twice_hint = kSplitParamHint};
  if (set.section != "optimizer") return rules;
  rules.takes_unlisted = true;
  rules.may_repeat = is_repeated_accumulator;
  if (!is_quantised_paddle(set)) return rules;
  // The index was made before quantising: it lists no scales, and has the total_size of F32 moments.
  rules.has_total_size = false;
  rules.is_expected = is_scale_name;
  rules.stands_for = moment_of_scales;
  return rules;
}

/// With skip_save_model_weight the flat slices of master weights are stored under the model's names.
void refuse_flat_model(const Parameters& parameters, const Reading& reading) {
  if (parameters.empty()) return;
  const ModelFacts facts = facts_of(config_of(reading), parameters.begin()->first);
  const bool is_flat = std::ranges::all_of(parameters, [](const auto& item) { return item.second.shape->size() == 1; });
  if (!is_flat) return;
  for (const auto& [name, parameter] : parameters) {
    if (!name.ends_with(".weight") || !marks_of(facts, name)) continue;
    throw Error(ErrorKind::kFormat,
                fmt::format("{}: tensor {} of the model and all others are flattened (skip_save_model_weight with "
                            "split_param): no file says their shapes; save again with split_param off",
                            reading.place(), in_quotes(name)));
  }
}

/// Sets whose files hold the state of single ranks: unmerged ones, and merged ones with flat slices of sharding v2.
std::vector<RankFiles> sets_by_rank(Reading& reading) {
  std::vector<RankFiles> sets = unmerged_files(reading);
  if (!sets.empty()) return sets;
  const Parameters parameters = parameters_of(reading);
  refuse_flat_model(parameters, reading);
  for (const auto& [name, set] : reading.sets()) {
    if (set.section != "optimizer" && set.section != kMasterWeights) continue;
    if (!set.has_map) {
      throw Error(ErrorKind::kNotFound,
                  fmt::format("{}: the file is missing; {} says that the optimizer was saved by rank "
                              "(ignore_merge_optimizer), and no rank's file is here",
                              reading.path_of(set.name + std::string(kDataSuffix)), shown(set.index_file)));
    }
    RankFiles files = merged_files(set, reading);
    if (has_flat_slices(files, parameters)) sets.push_back(std::move(files));
  }
  for (const RankFiles& files : sets) check_numbers(files, reading);
  return sets;
}

/// Merged files do not show whether flat slices are of tensor-parallel ranks. If they are, master weights that were
/// assembled as if from slices of the whole differ from the model.
void check_merged_slices(const std::vector<RankFiles>& sets, const Parameters& parameters, Reading& reading,
                         const Recognised& out) {
  if (std::ranges::none_of(sets, &RankFiles::is_numbered)) return;
  constexpr std::string_view kRemedy = "save again with split_param off";
  std::map<std::string_view, const format::PlacedTensor*> weights;
  for (const format::PlacedTensor& tensor : out.tensors) {
    if (tensor.section == "model") weights.emplace(tensor.name, &tensor);
  }
  CopyComparer comparer(reading);
  std::set<std::string> known;  // checked names, with all digits as 0: one check for each
  bool has_masters = false;
  for (const format::PlacedTensor& master : out.tensors) {
    if (master.section != kMasterWeights) continue;
    has_masters = true;
    std::string pattern(master.name);
    std::ranges::replace_if(pattern, base::is_digit, '0');
    const auto weight = weights.find(master.name);
    if (weight == weights.end() || !master.in_parts || !known.insert(std::move(pattern)).second) continue;
    try {
      if (comparer.is_rounded(master, *weight->second, parameters.at(master.name).is_turned)) continue;
    } catch (const Error& error) {  // ENOENT: another rank's file
      if (error.system_error() != ENOENT) throw;
      return reading.warn(
          "flat slices in merged files (split_param) were not compared with the model, whose file or theirs "
          "this rank does not see: they are right unless they are of tensor-parallel ranks");
    }
    throw Error(
        ErrorKind::kFormat,
        fmt::format("{}: flat slices of master weight {} (split_param) do not make the model's weight: they are "
                    "of tensor-parallel ranks, and merged files do not say where they lie; {}",
                    reading.place(), in_quotes(master.name), kRemedy));
  }
  // Each pipeline stage and tensor-parallel rank writes a file of the model, so one file means a single such rank.
  const auto model = reading.sets().find("model");
  if (has_masters || model == reading.sets().end() || model->second.files.size() == 1) return;
  throw Error(
      ErrorKind::kFormat,
      fmt::format("{}: flat slices of moments in merged files (split_param) may be of tensor-parallel ranks, and "
                  "no master weights tell; {}",
                  reading.place(), kRemedy));
}

/// An index of flat slices names one owner of each tensor, which must hold a slice of it.
void check_owners(const DataSet& set, const Reading& reading) {
  std::map<std::string_view, std::set<std::string_view>> names_of_files;
  for (const format::IndexEntry& tensor : set.index.tensors) {
    const std::string& file = set.index.file_of(tensor);
    const auto header = reading.directory().safetensors.find(file);
    if (header == reading.directory().safetensors.end()) {
      throw Error(ErrorKind::kNotFound,
                  fmt::format("{}: the file is missing; {} says that it holds tensor {}", reading.path_of(file),
                              shown(set.index_file), in_quotes(tensor.name)));
    }
    auto& names = names_of_files[file];
    if (names.empty()) {
      for (const format::TensorEntry& entry : header->second.tensors) names.insert(entry.name);
    }
    if (names.contains(tensor.name)) continue;
    throw reading.error(
        ErrorKind::kFormat, file,
        fmt::format("tensor {} is not in this file, as {} says", in_quotes(tensor.name), shown(set.index_file)));
  }
}

/// Facts that only the indexes and the metadata of files have.
PaddleState state_of(Reading& reading) {
  PaddleState state;
  const DataSets& sets = reading.sets();
  if (const auto optimizer = sets.find("optimizer"); optimizer != sets.end()) {
    const base::Json& extra = optimizer->second.index.extra;
    state.stage = stage_in(extra);
    const base::Json* times = extra.find(kResumeTimes);
    if (times != nullptr && times->is_number_unsigned()) state.resume_times = times->whole_number();
    const base::Json* masters = extra.find(kMasterWeights);
    state.masters_as_model = masters != nullptr && *masters == base::Json(true) && !sets.contains(kMasterWeights);
  }
  if (legacy_kind(reading) == LegacyKind::kPickles) {
    state.linears_out_in = false;
    return state;
  }
  const auto model = sets.find("model");
  if (model == sets.end() || model->second.files.empty()) return state;
  const auto& metadata = reading.header(model->second.files.front()).metadata;
  const auto format = metadata.find("format");
  state.linears_out_in = format != metadata.end() && format->second == "pt";
  return state;
}

/// PaddleFormers' trainer writes weights as safetensors files, without static names.
std::string words_of_nameless(const Reading& reading) {
  return fmt::format(
      "the optimizer state ({}): it has names of the process that wrote it, and no file says which "
      "weights these are",
      list_some(legacy_file_names(reading)));
}

void warn_of_ignored(Reading& reading) {
  const std::vector<std::string> ignored = ignored_legacy_files(reading);
  if (ignored.empty()) return;
  reading.warn(
      fmt::format("{} of a save with unified_checkpoint off, and ignored, as PaddlePaddle does beside a unified "
                  "checkpoint: {}",
                  base::counted(ignored.size(), "file is", "files are"), list_some(ignored)));
}

void describe_legacy(Reading& reading, Recognised& out) {
  read_legacy(reading, out);
  const std::set<std::string> sections = out.sections;
  std::vector<std::string> ignored;
  for (const auto& [name, set] : reading.sets()) {
    if (sections.contains(set.section)) ignored.insert(ignored.end(), set.files.begin(), set.files.end());
  }
  read_sets(reading, out, [&](const DataSet& set) -> std::optional<IndexRules> {
    if (sections.contains(set.section)) return std::nullopt;
    return IndexRules{.twice_hint = kSplitParamHint};
  });
  if (!ignored.empty()) {
    reading.warn(
        fmt::format("{} ignored beside the pickles that PaddlePaddle's trainer resumes from, since no index is "
                    "here: {}",
                    base::counted(ignored.size(), "file is", "files are"), list_some(ignored)));
  }
  take_u16_as_bf16(out.tensors, reading);
  add_tied(reading, out);
  if (out.sections.contains("optimizer")) warn_of_stateless(reading, out);
}

class Paddle final : public Dialect {
 public:
  [[nodiscard]] std::string_view name() const override { return "PaddlePaddle"; }

  [[nodiscard]] bool recognises(Reading& reading) const override {
    return is_paddle(reading.sets(), reading) || legacy_kind(reading) != LegacyKind::kNone;
  }

  void describe(Reading& reading, Recognised& out) const override {
    const LegacyKind legacy = legacy_kind(reading);
    if (legacy == LegacyKind::kPickles) return describe_legacy(reading, out);
    if (legacy == LegacyKind::kOptimizer) out.about.left.push_back(words_of_nameless(reading));
    warn_of_ignored(reading);
    const DataSets& sets = reading.sets();
    check_signals(reading);
    refuse_scales_without_codec(sets, reading);
    const std::vector<RankFiles> by_rank = sets_by_rank(reading);
    std::set<std::string_view> files_of_ranks;
    for (const RankFiles& files : by_rank) {
      for (const RankFile& file : files.files) files_of_ranks.insert(file.name);
    }
    const auto is_by_rank = [&](const DataSet& set) {
      if (!set.has_map && set.section == "optimizer") return true;
      return !set.files.empty() && files_of_ranks.contains(set.files.front());
    };
    read_sets(reading, out, [&](const DataSet& set) -> std::optional<IndexRules> {
      if (is_by_rank(set)) return std::nullopt;
      return rules_of(set);
    });
    const Parameters parameters = by_rank.empty() ? Parameters() : parameters_of(reading);
    if (by_rank.empty()) {
      out.quantised = find_quantised_moments(out.tensors, sets, reading);
    } else {
      const auto optimizer = sets.find("optimizer");
      const quant::Codec* codec = optimizer == sets.end() ? nullptr : codec_of_stage(optimizer->second, reading);
      for (const auto& [name, set] : sets) {
        if (is_by_rank(set)) check_owners(set, reading);
      }
      read_rank_files(by_rank, codec, parameters, reading, out);
    }
    take_u16_as_bf16(out.tensors, reading);
    check_merged_slices(by_rank, parameters, reading, out);
    add_tied(reading, out);
    std::ranges::sort(out.quantised, {}, [](const auto& moments) { return std::tie(moments.section, moments.first); });
    if (!by_rank.empty()) warn_of_stateless(reading, out);
    warn_of_turned_weights(reading, out);
    warn_of_absent_masters(sets, reading);
  }

  [[nodiscard]] FileKind kind_of(std::string_view file) const override {
    if (parse_legacy_name(file)) return FileKind::kPickle;
    if (is_legacy_index_name(file)) return FileKind::kIndex;
    return parse_signal_name(file) ? FileKind::kMark : FileKind::kOther;
  }

  [[nodiscard]] bool describes_file(std::string_view key, std::string_view value) const override {
    return key == "format" && (value == "np" || value == "pd");
  }

  [[nodiscard]] std::string_view why_unread(std::string_view file) const override {
    return file.ends_with(".pdparams")
               ? "PaddlePaddle's pickles are read under its trainers' names, model_state.pdparams and the like"
               : "";
  }

  [[nodiscard]] std::span<const Form* const> forms() const override { return paddle_forms(); }

  [[nodiscard]] std::optional<plan::TensorMap> map_to_hugging_face(const plan::Catalog& view,
                                                                   const StateToWrite& state) const override {
    return paddle_in_hugging_face(view, state);
  }

  [[nodiscard]] std::string_view key_of_states() const override { return kPaddleValue; }

  /// Paddle's trainers resume from these small files, most of which are pickles.
  [[nodiscard]] bool carries(std::string_view file) const override { return is_paddle_state_file(file); }

  void tell(Reading& reading, About& out) const override {
    tell_of_trainer(reading, out);
    tell_of_state(reading, out);
    out.version.clear();  // until here the version of transformers
    tell_of_version(reading, "paddlenlp_version", "PaddleNLP", out);
    tell_of_version(reading, "paddleformers_version", "PaddleFormers", out);
    if (legacy_kind(reading) == LegacyKind::kPickles) {
      out.parallel = legacy_files(reading).parallel();
    } else if (const std::vector<RankFiles> by_rank = unmerged_files(reading); !by_rank.empty()) {
      out.parallel = by_rank.front().parallel();
    }
    out.values[kPaddleValue] = encode_paddle_state(state_of(reading));
    const auto optimizer = reading.sets().find("optimizer");
    if (optimizer == reading.sets().end() || !is_quantised_paddle(optimizer->second)) return;
    out.quantisation = codec_of(quant_stage(optimizer->second));
  }
};

}  // namespace

const Dialect& paddle_dialect() {
  static const Paddle dialect;
  return dialect;
}

}  // namespace cairn::interop
