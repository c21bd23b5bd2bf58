#include "export/paddle_form.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <deque>
#include <limits>
#include <optional>
#include <set>
#include <utility>

#include "base/checked.hpp"
#include "base/text.hpp"
#include "cairn/error.hpp"
#include "directory/carried.hpp"
#include "format/manifest.hpp"
#include "format/safetensors.hpp"
#include "interop/paddle/paddle.hpp"
#include "interop/reading.hpp"
#include "shard/box_math.hpp"

namespace cairn::checkpoint {
namespace {

constexpr std::uint64_t kMaxJsonBytes = 256ULL << 20;
constexpr std::string_view kOptimizer = "optimizer";
constexpr std::string_view kMasters = "master_weights";
constexpr std::string_view kHead = "lm_head.weight";
constexpr std::string_view kEmbedding = "embed_tokens.weight";
constexpr std::string_view kFirstMoment = "/moment1_0";
constexpr std::string_view kSecondMoment = "/moment2_0";

/// Model types whose PaddleNLP classes name their base model so, where others have "model.".
constexpr std::array<std::string_view, 8> kOwnPrefixes = {"llama",   "qwen2", "qwen2_moe",   "mistral",
                                                          "mixtral", "gemma", "deepseek_v2", "deepseek_v3"};

std::string_view parameter_of(std::string_view section, std::string_view name) {
  return section == kOptimizer ? name.substr(0, name.find('/')) : name;
}

std::string text_of(const base::Json& config, const char* key) {
  const base::Json* value = config.find(key);
  return value != nullptr && value->is_string() ? value->text() : "";
}

std::optional<std::uint64_t> size_of(const base::Json& config, const char* key) {
  const base::Json* value = config.find(key);
  if (value == nullptr || !value->is_number_unsigned()) return std::nullopt;
  return value->whole_number();
}

/// Whether a weight of the feed-forward layers is [intermediate, hidden], or [hidden, intermediate], by its shape.
std::optional<bool> is_out_in(std::string_view name, const std::vector<std::uint64_t>& shape,
                              const base::Json& config) {
  if (!name.ends_with("mlp.gate_proj.weight") && !name.ends_with("mlp.up_proj.weight")) return std::nullopt;
  const auto hidden = size_of(config, "hidden_size");
  const auto inner = size_of(config, "intermediate_size");
  if (shape.size() != 2 || !hidden || !inner || hidden == inner) return std::nullopt;
  if (shape[0] == *inner && shape[1] == *hidden) return true;
  if (shape[0] == *hidden && shape[1] == *inner) return false;
  return std::nullopt;
}

std::string stage_of(const plan::Catalog& catalog) {
  for (const auto& tensor : catalog.tensors) {
    if (tensor.section != kOptimizer || tensor.dtype != DType::kI8) continue;
    if (tensor.name.ends_with(kFirstMoment)) return "O1";
    if (tensor.name.ends_with(kSecondMoment)) return "O2";
  }
  return "O0";
}

/// Gate and up in one weight: under tensor parallelism Paddle takes a rank's scales as one piece, although its columns are
/// two, and resumes with wrong moments without a word.
bool has_misread_scales(std::string_view name) { return name.find("gate_up_fused_proj") != std::string_view::npos; }

bool is_paddle_codec(std::string_view codec) { return codec == "paddle-o1" || codec == "paddle-o2"; }

}  // namespace

PaddleForm::PaddleForm(const interop::PaddlePackage& package, const OpenCheckpoint& source, std::uint64_t cards,
                       const std::string& quant)
    : package_(package), source_(source), cards_(cards), quant_(quant) {
  const bool has_codec = quant != "keep" && quant != "off";
  if (has_codec && !is_paddle_codec(quant)) {
    throw Error(ErrorKind::kUsage,
                fmt::format("{} reads no moments in {}: leave --quant out, or give off, paddle-o1 or "
                            "paddle-o2",
                            package.name, quant));
  }
  if (has_codec && cards == 1) {
    throw Error(ErrorKind::kUsage,
                fmt::format("{} on one card reads no quantised moments: leave --quant out", package.name));
  }
  if (std::ranges::find(source.carried, "config.json") != source.carried.end()) {
    config_ = base::Json::parse(read_carried(source, "config.json", kMaxJsonBytes), "config.json");
  }
  const std::string* text = value(interop::kPaddleValue);
  if (const auto state = text == nullptr ? std::nullopt : interop::parse_paddle_state(*text)) {
    has_paddle_state_ = true;
    found_ = *state;
  }
}

const std::string* PaddleForm::value(const char* key) const {
  const auto& values = source_.manifest ? source_.manifest->user_metadata : source_.about.values;
  const auto found = values.find(key);
  return found == values.end() ? nullptr : &found->second;
}

bool PaddleForm::keeps_codes(std::vector<std::string>& notes) const {
  if (quant_ != "keep") return false;
  const bool is_rebuilt = source_.manifest && source_.manifest->extra.contains(format::kRebuiltKey);
  if (source_.quantised.empty() && !is_rebuilt) return true;
  std::set<std::string> codecs;
  for (const auto& moments : source_.quantised) codecs.insert(moments.codec);
  const bool is_misread = std::ranges::any_of(
      source_.quantised, [](const auto& moments) { return has_misread_scales(moments.parts.at(0)); });
  const bool is_sliced =
      std::ranges::any_of(source_.quantised, [](const auto& moments) { return !moments.boxes.empty(); });
  const bool is_readable = codecs.empty() || (codecs.size() == 1 && is_paddle_codec(*codecs.begin()));
  if (cards_ != 1 && is_readable && !is_misread && !is_sliced && !is_rebuilt) return true;
  notes.push_back(fmt::format("moments and weights are written in full: {}",
                              cards_ == 1 ? "a resume on one card reads no quantised ones"
                              : is_misread
                                  ? "its loader takes wrong scales of fused gate and up under tensor parallelism"
                              : is_sliced  ? "scales are those of slices, not of whole tensors"
                              : is_rebuilt ? "weights that were left out are not made by its loader"
                                           : "its loader does not know these codes"));
  return false;
}

std::string PaddleForm::name_of(const std::string& name) const {
  const std::string type = text_of(config_, "model_type");
  if (std::ranges::find(kOwnPrefixes, type) == kOwnPrefixes.end()) return name;
  const std::string own = type + ".";
  const std::string common = "model.";
  const bool wants_own = package_.word == "paddlenlp";
  const std::string& from = wants_own ? common : own;
  return name.starts_with(from) ? (wants_own ? own : common) + name.substr(from.size()) : name;
}

PaddleForm::Orders PaddleForm::orders_of(const plan::Catalog& view) const {
  if (has_paddle_state_) return {found_.linears_out_in.value_or(package_.linears_out_in), false};
  std::optional<bool> model;
  std::optional<bool> state;
  bool has_linear = false;
  for (const auto& tensor : view.tensors) {
    const std::string_view parameter = parameter_of(tensor.section, tensor.name);
    if (tensor.section == "adapter" || !interop::is_paddle_linear(parameter)) continue;
    has_linear = true;
    const auto found = is_out_in(parameter, tensor.shape, config_);
    if (found) (tensor.section == "model" ? model : state) = found;
  }
  if (has_linear && !model && !state) {
    throw Error(ErrorKind::kUsage,
                fmt::format("nothing says whether linear weights are [in, out] or [out, in] in {}: it is no checkpoint "
                            "of PaddlePaddle, and config.json with hidden_size and intermediate_size that differ would "
                            "tell by mlp.gate_proj",
                            base::printable(source_.directory.string())));
  }
  const bool of_model = model.value_or(state.value_or(false));
  return {of_model, state.value_or(of_model)};
}

PaddleTensors PaddleForm::tensors_of(const plan::Catalog& view, std::vector<std::string>& notes) {
  const Orders orders = orders_of(view);
  PaddleTensors renamed;
  for (std::uint32_t i = 0; i < view.tensors.size(); ++i) {
    plan::CatalogTensor tensor = view.tensors[i];
    const std::string old(parameter_of(tensor.section, tensor.name));
    const std::string parameter = name_of(old);
    bool transposed = false;
    if (tensor.section != "adapter" && interop::is_paddle_linear(parameter)) {
      const bool is_model = tensor.section == "model";
      transposed = is_model ? orders.model_out_in != package_.linears_out_in : orders.state_out_in;
    }
    // PaddleNLP has the head as a linear layer, PaddleFormers and Hugging Face as the embedding.
    const bool is_tied = config_.find("tie_word_embeddings") != nullptr && config_.at("tie_word_embeddings") == true;
    if (parameter == kHead && !is_tied) {
      const auto vocabulary = size_of(config_, "vocab_size");
      const auto hidden = size_of(config_, "hidden_size");
      const bool wants_rows = package_.word == "paddleformers";
      if (vocabulary && hidden && vocabulary != hidden && tensor.shape.size() == 2) {
        transposed = (tensor.shape[0] == *vocabulary) != wants_rows;
      }
    }
    transposed = transposed && tensor.shape.size() == 2;
    if (transposed && (tensor.dtype == DType::kI8 || tensor.dtype == DType::kU8)) {
      throw Error(ErrorKind::kUsage, fmt::format("the codes of '{}' cannot be transposed for {}: add --quant off",
                                                 base::printable(tensor.name), package_.name));
    }
    if (transposed) std::swap(tensor.shape[0], tensor.shape[1]);
    tensor.name.replace(0, old.size(), parameter);
    renamed.catalog.tensors.push_back(std::move(tensor));
    renamed.sources.push_back(i);
    renamed.transposed.push_back(transposed);
  }
  add_tied(renamed, notes);
  // Into catalog order again.
  std::map<std::pair<std::string, std::string>, std::size_t> places;
  for (std::size_t i = 0; i < renamed.catalog.tensors.size(); ++i) {
    places[{renamed.catalog.tensors[i].section, renamed.catalog.tensors[i].name}] = i;
  }
  PaddleTensors out;
  out.catalog = plan::make_catalog(renamed.catalog.tensors);
  for (const auto& tensor : out.catalog.tensors) {
    const std::size_t at = places.at({tensor.section, tensor.name});
    out.sources.push_back(renamed.sources[at]);
    out.transposed.push_back(renamed.transposed[at]);
  }
  check_loadable(out.catalog);
  return out;
}

void PaddleForm::add_tied(PaddleTensors& out, std::vector<std::string>& notes) const {
  const base::Json* tied = config_.find("tie_word_embeddings");
  if (tied == nullptr || *tied != true || cards_ == 1) return;
  std::string embedding;
  std::set<std::pair<std::string, std::string>> names;
  for (const auto& tensor : out.catalog.tensors) {
    names.emplace(tensor.section, tensor.name);
    if (tensor.section == "model" && tensor.name.ends_with(kEmbedding)) embedding = tensor.name;
  }
  if (embedding.empty() || !names.contains({"model", std::string(kHead)})) return;
  std::size_t added = 0;
  const std::size_t count = out.catalog.tensors.size();
  for (std::size_t i = 0; i < count; ++i) {
    plan::CatalogTensor twin = out.catalog.tensors[i];
    if (twin.section != kOptimizer && twin.section != kMasters) continue;
    const std::string parameter(parameter_of(twin.section, twin.name));
    if (parameter != embedding && parameter != kHead) continue;
    twin.name.replace(0, parameter.size(), parameter == kHead ? embedding : std::string(kHead));
    if (!names.emplace(twin.section, twin.name).second) continue;
    out.catalog.tensors.push_back(std::move(twin));
    out.sources.push_back(out.sources[i]);
    out.transposed.push_back(out.transposed[i]);
    ++added;
  }
  if (added == 0) return;
  notes.push_back(
      fmt::format("{} of the tied weight written under both of its names, which a resume on several cards "
                  "looks for",
                  base::counted(added, "tensor is", "tensors are")));
}

/// What check_dynamic_load, load_unified_optimizer_locally and their like would stumble over.
void PaddleForm::check_loadable(const plan::Catalog& written) const {
  std::map<std::string, std::set<std::string>> types;  // parameter -> of its states
  std::set<std::string> all;
  std::set<std::string> weights;
  for (const auto& tensor : written.tensors) {
    if (tensor.section == "model" || tensor.section == "adapter") weights.insert(tensor.name);
    if (tensor.section != kOptimizer || interop::is_scale_name(tensor.name)) continue;
    if (is_paddle_codec(quant_) && has_misread_scales(tensor.name)) {
      throw Error(ErrorKind::kUsage, fmt::format("'{}': {} takes wrong scales of fused gate and up under tensor "
                                                 "parallelism: leave --quant out, or give off",
                                                 base::printable(tensor.name), package_.name));
    }
    const std::size_t slash = tensor.name.find('/');
    if (slash == std::string::npos || tensor.name.find('/', slash + 1) != std::string::npos) {
      throw Error(ErrorKind::kUsage,
                  fmt::format("tensor '{}' of section optimizer is not called '<parameter>/moment1_0' or the like: {} "
                              "would not find it",
                              base::printable(tensor.name), package_.name));
    }
    const std::string type = tensor.name.substr(slash + 1);
    types[tensor.name.substr(0, slash)].insert(type);
    all.insert(type);
    // The codes of both moments stand in the second's.
    if (tensor.dtype == DType::kI8 && tensor.name.ends_with(kSecondMoment)) {
      types[tensor.name.substr(0, slash)].insert(std::string(kFirstMoment.substr(1)));
      all.insert(std::string(kFirstMoment.substr(1)));
    }
  }
  for (const auto& [parameter, own] : types) {
    if (!weights.empty() && !weights.contains(parameter)) {
      throw Error(ErrorKind::kUsage,
                  fmt::format("the optimizer has states of '{}', which is no weight of the model: {} "
                              "would not find its place",
                              base::printable(parameter), package_.name));
    }
    for (const std::string& type : all) {
      if (own.contains(type)) continue;
      throw Error(ErrorKind::kUsage,
                  fmt::format("'{}/{}' is missing, and other parameters have it: {} would not resume",
                              base::printable(parameter), base::printable(type), package_.name));
    }
  }
}

void PaddleForm::finish(CodedCatalog& content) {
  written_ = found_;
  written_.linears_out_in = package_.linears_out_in;
  written_.stage = stage_of(content.catalog);
  // Codes that were decoded, here or on the way here, count as resumed from: they have lost what coding loses.
  const bool was_coded = found_.stage != "O0" && (written_.stage == "O0" || !content.pairs.empty());
  if (was_coded) ++written_.resume_times;
  bool is_f32 = true;
  for (auto& tensor : content.catalog.tensors) {
    has_masters_ = has_masters_ || tensor.section == kMasters;
    if (tensor.section == "model") is_f32 = is_f32 && tensor.dtype == DType::kF32;
    if (package_.bf16_as_u16 && tensor.dtype == DType::kBF16) tensor.dtype = DType::kU16;
  }
  written_.masters_as_model = found_.masters_as_model && !has_masters_ && is_f32;
}

plan::LayoutOptions PaddleForm::layout_options(std::uint64_t max_bytes, std::uint64_t align_bytes) const {
  plan::LayoutOptions options;
  options.max_file_bytes = cards_ == 1 ? std::numeric_limits<std::uint64_t>::max() : max_bytes;
  options.align_bytes = align_bytes;
  options.metadata = {{"format", "np"}};
  options.habits.stems["adapter"] = "peft_model";
  options.habits.metadata["model"] = {{"format", std::string(package_.model_format)}};
  options.habits.numbers_single_files = true;
  options.habits.keeps_states_together = true;
  options.habits.writes_codings = false;
  options.habits.writes_indexes = false;
  return options;
}

std::optional<std::uint64_t> PaddleForm::step() const {
  if (!source_.manifest) return source_.about.step;
  if (!source_.manifest->has_step) return std::nullopt;
  return source_.manifest->step;
}

/// Of what is known of the schedule, if that is enough.
std::optional<std::string> PaddleForm::scheduler_text() const {
  const std::string* text = value("scheduler");
  if (text == nullptr) return std::nullopt;
  try {
    const base::Json state = base::Json::parse(*text, "scheduler");
    if (state.size() == 2 && state.contains("last_epoch") && state.contains("last_lr")) {
      return interop::encode_scheduler(state.at("last_epoch").whole_number(), state.at("last_lr").real_number());
    }
  } catch (const Error&) {  // a user's own value of that name
  }
  return std::nullopt;
}

namespace {

std::string index_of(const plan::FileLayout& layout, const std::string& section, const std::string& stage,
                     std::map<std::string, std::string> extra) {
  interop::PaddleIndex index;
  index.extra = std::move(extra);
  std::map<std::uint32_t, std::uint32_t> numbers;  // of the layout's files in the index
  std::deque<std::string> made;
  const auto add = [&](std::string_view name, std::uint32_t file, std::uint64_t bytes) {
    const auto [at, is_new] = numbers.emplace(file, static_cast<std::uint32_t>(index.files.size()));
    if (is_new) index.files.push_back(layout.files[file].name);
    index.tensors.push_back({name, at->second});
    index.total_bytes = base::add(index.total_bytes, bytes, "total size of an index");
  };
  for (const auto& tensor : layout.stored.tensors) {
    // The index is of what was coded: no scales, both moments, and their bytes in F32.
    if (tensor.section != section || interop::is_scale_name(tensor.name)) continue;
    const std::uint32_t file = tensor.boxes.at(0).file;
    const bool is_code = section == kOptimizer && (tensor.dtype == DType::kI8 || tensor.dtype == DType::kU8);
    const std::uint64_t bytes =
        is_code ? 4 * shard::elements_of(tensor.shape) : format::tensor_bytes(tensor.dtype, tensor.shape, tensor.name);
    if (is_code && stage == "O2") {
      const std::string_view parameter = parameter_of(kOptimizer, tensor.name);
      made.push_back(std::string(parameter) + std::string(kFirstMoment));
      add(made.back(), file, bytes);
    }
    add(tensor.name, file, bytes);
  }
  return interop::encode_paddle_index(index);
}

}  // namespace

std::map<std::string, std::string> PaddleForm::small_files(const plan::FileLayout& layout,
                                                           const std::vector<std::string>& carried,
                                                           std::vector<std::string>& notes) const {
  const auto is_carried = [&](std::string_view name) { return std::ranges::find(carried, name) != carried.end(); };
  std::map<std::string, std::string> files;
  std::set<std::string> sections;
  for (const auto& file : layout.files) sections.insert(file.section);
  for (const std::string& section : sections) {
    std::map<std::string, std::string> extra;
    if (section == kOptimizer) {
      // PaddleFormers writes true even without them, and then looks for their index in vain.
      extra["master_weights"] = has_masters_ || written_.masters_as_model ? "true" : "false";
      extra["quant_ckpt_resume_times"] = std::to_string(written_.resume_times);
      if (written_.stage != "O0") extra["ckpt_quant_stage"] = '"' + written_.stage + '"';
    }
    if (section == "adapter") extra["type"] = is_carried("prefix_config.json") ? "\"ptuning\"" : "\"lora\"";
    const std::string stem = section == "adapter" ? "peft_model" : section;
    files[stem + ".safetensors.index.json"] = index_of(layout, section, written_.stage, std::move(extra));
  }
  if (written_.stage == "O2") {
    notes.push_back(
        fmt::format("{} cannot load moments of O2, its own neither (\"dictionary changed size during "
                    "iteration\"): for a resume write --quant off or paddle-o1",
                    package_.name));
  }
  if (!sections.contains(std::string(kOptimizer))) return files;
  if (!is_carried("scheduler.pdparams")) {
    if (const auto text = scheduler_text()) {
      files["scheduler.pdparams"] = *text;
    } else {
      notes.push_back(fmt::format("the source has no scheduler.pdparams: {} resumes only with ignore_load_lr_and_optim",
                                  package_.name));
    }
  }
  if (is_carried(package_.trainer_state)) return files;
  if (step()) {
    files[std::string(package_.trainer_state)] = interop::encode_trainer_state(package_, *step());
  } else {
    notes.push_back(fmt::format("nothing says the step of the source: {} begins to count at 0", package_.name));
  }
  return files;
}

std::string PaddleForm::state_text() const { return interop::encode_paddle_state(written_); }

}  // namespace cairn::checkpoint
