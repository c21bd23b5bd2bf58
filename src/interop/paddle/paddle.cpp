// The signs by which Paddle's checkpoints are known, and what follows from them.
#include "interop/paddle/paddle.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <unordered_map>

#include "base/json.hpp"
#include "base/text.hpp"
#include "interop/codings.hpp"
#include "interop/file_names.hpp"
#include "interop/paddle/moments.hpp"
#include "interop/state_beside.hpp"
#include "shard/box_math.hpp"

namespace cairn::interop {
namespace {

constexpr const char* kQuantStage = "ckpt_quant_stage";
constexpr const char* kMasterWeights = "master_weights";
constexpr std::array<const char*, 4> kIndexKeys = {kMasterWeights, kQuantStage, "quant_ckpt_resume_times",
                                                   "optim_shard_num"};
constexpr std::array<std::string_view, 3> kMomentSuffixes = {kFirstMoment, kSecondMoment, "/velocity_0"};

bool has_paddle_keys(const base::Json& object) {
  return std::any_of(kIndexKeys.begin(), kIndexKeys.end(), [&](const char* key) { return object.contains(key); });
}

/// "O1" of an index, "O0" when it does not say.
std::string stage_in(const base::Json& object) {
  const base::Json* stage = object.find(kQuantStage);
  if (stage == nullptr) return "O0";
  return stage->is_string() ? stage->text() : stage->dump({.sorted = true, .ascii = true, .is_lenient = true});
}

std::string codec_of(const std::string& stage) {
  if (stage == "O1") return "O1: 8-bit moments";
  if (stage == "O2") return "O2: 4-bit moments";
  return shown(stage);
}

Error unmerged(const std::string& file, Reading& reading) {
  const auto set = std::ranges::find(reading.sets(), file, [](const auto& item) { return item.second.index_file; });
  const std::string stage = set == reading.sets().end() ? "O0" : quant_stage(set->second);
  const std::string quantised = stage == "O0" ? "" : fmt::format(" and quantised ({})", codec_of(stage));
  return reading.error(
      ErrorKind::kFormat, file,
      fmt::format("PaddlePaddle saved this optimizer unmerged (ignore_merge_optimizer){}: each file holds "
                  "one rank's slices and does not say where they belong; save it again merged",
                  quantised));
}

/// The parameter that a master weight or moment belongs to; empty for other tensors (scalars).
std::string_view parameter_of(const format::PlacedTensor& tensor) {
  if (tensor.section == kMasterWeights) return tensor.name;
  if (tensor.section != "optimizer") return {};
  for (const auto suffix : kMomentSuffixes) {
    if (tensor.name.ends_with(suffix)) return tensor.name.substr(0, tensor.name.size() - suffix.size());
  }
  return {};
}

/// Sharding v2 of PaddleFormers writes 1-d pieces of a padded flat buffer under the names of whole parameters.
void refuse_flat_slices(const std::vector<format::PlacedTensor>& tensors, const Reading& reading) {
  std::unordered_map<std::string_view, const format::PlacedTensor*> parameters;
  for (const auto& tensor : tensors) {
    if (tensor.section == "model" || tensor.section == "adapter") parameters.emplace(tensor.name, &tensor);
  }
  for (const auto& tensor : tensors) {
    if (tensor.shape.size() != 1) continue;
    const auto found = parameters.find(parameter_of(tensor));
    if (found == parameters.end() || found->second->shape.empty() ||
        std::ranges::equal(found->second->shape, tensor.shape))
      continue;
    const auto file = std::next(reading.directory().safetensors.begin(), tensor.file);
    throw reading.error(
        ErrorKind::kFormat, file->first,
        fmt::format("tensor {} of shape {} is a flat slice of a parameter of shape {} (sharding v2, "
                    "split_param): PaddlePaddle did not gather it, and it cannot be placed; save again "
                    "with split_param off",
                    in_quotes(tensor.name), shard::shape_text(tensor.shape), shard::shape_text(found->second->shape)));
  }
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
  if (optimizer == sets.end() || sets.contains(kMasterWeights)) return;
  const base::Json* promise = optimizer->second.index.extra.find(kMasterWeights);
  if (promise == nullptr || *promise != base::Json(true)) return;
  reading.warn(
      fmt::format("{} says that master weights were saved, but no file holds them: they were left out "
                  "(remove_master_weight) or saved in place of the model (skip_save_model_weight)",
                  shown(optimizer->second.index_file)));
}

}  // namespace

std::optional<std::string> unmerged_sign(Reading& reading) {
  for (const auto& [name, set] : reading.sets()) {
    if (!set.has_map && has_paddle_keys(set.index.extra)) return set.index_file;
  }
  for (const auto& [file, header] : reading.directory().safetensors) {
    if (is_unmerged_paddle_name(file)) return file;
  }
  return std::nullopt;
}

bool is_paddle(const DataSets& sets, const Reading& reading) {
  if (sets.contains("peft_model")) return true;
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
            fmt::format("tensor {} is a scale of quantised moments, but no index names their codec ({})",
                        in_quotes(entry.name), kQuantStage));
      }
    }
  }
}

void finish_paddle(std::vector<format::PlacedTensor>& tensors, const DataSets& sets, Reading& reading) {
  refuse_flat_slices(tensors, reading);
  take_u16_as_bf16(tensors, reading);
  warn_of_absent_masters(sets, reading);
}

namespace {

Strictness strictness_of(const DataSet& set) {
  if (set.section != "optimizer") return Strictness::kPaddle;
  return is_quantised_paddle(set) ? Strictness::kPaddleQuantised : Strictness::kPaddleOptimizer;
}

class Paddle final : public Dialect {
 public:
  [[nodiscard]] std::string_view name() const override { return "PaddlePaddle"; }

  [[nodiscard]] bool recognises(Reading& reading) const override {
    return unmerged_sign(reading) || is_paddle(reading.sets(), reading);
  }

  void describe(Reading& reading, Recognised& out) const override {
    if (const auto sign = unmerged_sign(reading)) throw unmerged(*sign, reading);
    const DataSets& sets = reading.sets();
    refuse_scales_without_codec(sets, reading);
    read_sets(reading, out, strictness_of);
    finish_paddle(out.tensors, sets, reading);
    out.quantised = find_quantised_moments(out.tensors, sets, reading);
  }

  void tell(Reading& reading, About& out) const override {
    tell_of_trainer(reading, out);
    out.version.clear();  // config.json's is of the library that the model came from
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
