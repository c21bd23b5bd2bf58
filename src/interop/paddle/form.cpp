// PaddleNLP's and PaddleFormers' files as forms: tensors with the names and the order of dimensions from which the
// package's trainer resumes (written.hpp), and the small files that it reads.
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <set>
#include <utility>

#include "base/text.hpp"
#include "cairn/error.hpp"
#include "interop/paddle/check.hpp"
#include "interop/paddle/config.hpp"
#include "interop/paddle/families.hpp"
#include "interop/paddle/files.hpp"
#include "interop/paddle/paddle.hpp"
#include "shard/box_math.hpp"

namespace cairn::interop {
namespace {

constexpr std::string_view kAdapter = "adapter";

constexpr std::string_view kOptimizer = "optimizer";
constexpr std::string_view kMasters = "master_weights";

bool is_paddle_codec(std::string_view codec) { return codec == "paddle-o1" || codec == "paddle-o2"; }

class CheckedForPaddle final : public CheckedState {
 public:
  CheckedForPaddle(const PaddlePackage& package, PaddleFacts facts) : package_(package), facts_(std::move(facts)) {}

  [[nodiscard]] std::string problem() const override { return problem_of_adam(package_, facts_); }
  [[nodiscard]] FormFiles files_beside(std::map<std::string, std::string> indexes, const StateToWrite& state,
                                       std::uint64_t processes) const override {
    return paddle_files(package_, facts_, std::move(indexes), state, processes);
  }

 private:
  const PaddlePackage& package_;
  PaddleFacts facts_;
};

/// The known facts about a conversion's source.
struct Source {
  ModelFacts facts;
  const PaddlePackage* package = nullptr;  ///< the package that wrote the source; null: another system
  bool model_out_in = false;               ///< the model's linear weights are [out, in]
  bool state_out_in = false;
  std::optional<std::uint64_t> hidden;
};

/// The package that wrote a checkpoint of Paddle.
const PaddlePackage* package_of(const PaddleState& state, const plan::Catalog& view, const base::Json& config,
                                const ModelFacts& facts) {
  const PaddlePackage* const nlp = paddle_package("paddlenlp");
  const PaddlePackage* const formers = paddle_package("paddleformers");
  if (state.linears_out_in == true) return formers;
  const FamilyPrefixes prefixes = prefixes_of(facts, *nlp);
  const auto begins_so = [&](const std::string& prefix) {
    return !prefix.empty() &&
           std::ranges::any_of(view.tensors, [&](const auto& tensor) { return tensor.name.starts_with(prefix); });
  };
  if (begins_so(prefixes.own)) return nlp;
  return begins_so(prefixes.other) || config.contains("paddleformers_version") ? formers : nlp;
}

/// Derives the order of dimensions in another system's weights from their shapes and config.json's hidden_size.
void find_orders(const plan::Catalog& view, std::string_view place, const base::Json& config,
                 const PaddlePackage& package, Source& source) {
  std::optional<bool> model;
  std::optional<bool> state;
  bool has_linear = false;
  for (const auto& tensor : view.tensors) {
    const std::string_view parameter = paddle_parameter_of(tensor.section, tensor.name);
    if (tensor.section == "adapter" || is_turned(source.facts, package, parameter) != true) continue;
    has_linear = has_linear || parameter != kPaddleHead;
    const auto found = is_out_in(parameter, tensor.shape, config);
    auto& known = tensor.section == "model" ? model : state;
    if (found && known && *found != *known) {
      throw Error(ErrorKind::kUsage,
                  fmt::format("'{}' is {} in {}: by hidden_size of config.json other linear weights "
                              "are the other way round",
                              base::printable(tensor.name), shard::shape_text(tensor.shape), base::printable(place)));
    }
    if (found) known = found;
  }
  if (has_linear && !model && !state) {
    throw Error(ErrorKind::kUsage,
                fmt::format("nothing says whether linear weights are [in, out] or [out, in] in {}: it is no checkpoint "
                            "of PaddlePaddle, and config.json with a hidden_size that is one of a weight's two sizes "
                            "would tell",
                            base::printable(place)));
  }
  source.model_out_in = model.value_or(state.value_or(false));
  source.state_out_in = state.value_or(source.model_out_in);
}

Source source_of(const plan::Catalog& view, const StateToWrite& state, const base::Json& config,
                 const PaddlePackage& package) {
  Source source;
  source.hidden = size_of_config(config, "hidden_size");
  source.facts = facts_of(config);
  for (const auto& tensor : view.tensors) {
    take_family(source.facts, tensor.name);
    const bool is_embedding = tensor.section == "model" && tensor.name.ends_with(kPaddleEmbedding);
    if (is_embedding && tensor.shape.size() == 2 && !source.hidden) source.hidden = tensor.shape[1];
  }
  const auto paddle = paddle_state_of(state);
  if (paddle) {
    source.package = package_of(*paddle, view, config, source.facts);
    source.model_out_in = paddle->linears_out_in.value_or(package.linears_out_in);
  } else {
    find_orders(view, state.place, config, package, source);
  }
  return source;
}

/// Throws Error(kUsage) for weights that the source fuses or names differently from the package.
void refuse_other_weights(const plan::Catalog& view, const Source& source, const PaddlePackage& package) {
  if (source.package == &package) return;
  const auto is_own = [&](const auto& tensor) { return tensor.name.starts_with(source.facts.family + "."); };
  if (is_renamed(source.facts) && (source.package != nullptr || std::ranges::none_of(view.tensors, is_own))) {
    throw Error(ErrorKind::kUsage, fmt::format("the weights of {} have other names in {}, and are not renamed",
                                               base::printable(source.facts.family), package.name));
  }
  if (source.package == nullptr) return;
  for (const auto& tensor : view.tensors) {
    const std::string_view parameter = paddle_parameter_of(tensor.section, tensor.name);
    const auto marks = marks_of(source.facts, parameter);
    if (tensor.section == "adapter" || !marks || !has_mark(*marks, 'f')) continue;
    throw Error(ErrorKind::kUsage,
                fmt::format("'{}' is several weights in one, which {} made so and {} has apart: they are not split; "
                            "convert it to {}",
                            base::printable(tensor.name), source.package->name, package.name, source.package->word));
  }
}

/// Throws Error(kUsage) for a weight that has scales of blocks, and for codes (I8 or U8): neither can be transposed
/// without decoding.
void refuse_codes(const plan::Catalog& view, const plan::NumbersByName& numbers, const plan::CatalogTensor& weight,
                  std::string_view reader) {
  for (const char* end : {"_scale_inv", "_scale"}) {
    const std::string name = weight.name + end;
    const auto scales = numbers.find({weight.section, name});
    if (scales == numbers.end() || view.tensors[scales->second].shape.size() < 2) continue;
    throw Error(ErrorKind::kUsage,
                fmt::format("'{}' is quantised by blocks, with scales in '{}', and would have to be transposed for {}: "
                            "dequantise the model first",
                            base::printable(weight.name), base::printable(name), reader));
  }
  if (weight.dtype != DType::kI8 && weight.dtype != DType::kU8) return;
  throw Error(ErrorKind::kUsage,
              fmt::format("the codes of '{}' cannot be transposed for {}: {}", base::printable(weight.name), reader,
                          weight.section == "model" ? "dequantise the model first" : "add --quant off"));
}

/// Whether a tensor must be transposed. `package`: the one that will read it; null: Hugging Face. Throws Error(kUsage)
/// if the table has no answer, and one is needed.
bool is_to_be_turned(const plan::CatalogTensor& tensor, std::string_view parameter, const Source& source,
                     const PaddlePackage* package) {
  const bool is_model = tensor.section == "model";
  if (tensor.section == "adapter" || tensor.shape.size() != 2) return false;
  // A vocabulary may have padding; the other size, hidden_size, is conclusive.
  const bool is_head_told = parameter == kPaddleHead && source.hidden &&
                            (tensor.shape[0] == *source.hidden) != (tensor.shape[1] == *source.hidden);
  const bool is_same =
      package != nullptr && source.package == package && (!is_model || source.model_out_in == package->linears_out_in);
  if (is_same && !is_head_told) return false;
  const ModelFacts& facts = source.facts;
  const PaddlePackage& asked = package != nullptr ? *package : *source.package;
  const auto turned = is_turned(facts, asked, parameter);
  const bool is_out_in = is_model ? source.model_out_in : source.state_out_in;
  if (!turned) {
    if (is_out_in == (package == nullptr || (is_model && package->linears_out_in))) return false;
    throw Error(ErrorKind::kUsage,
                fmt::format("whether {} has '{}' the other way round than Hugging Face depends on the model, and {}",
                            asked.name, base::printable(tensor.name), why_unknown(facts)));
  }
  bool here = false;
  if (is_head_told) {
    here = tensor.shape[0] == *source.hidden;
  } else if (source.package != nullptr) {
    here = (is_model && is_out_in ? is_turned_in_model(facts, *source.package, parameter)
                                  : is_turned(facts, *source.package, parameter))
               .value_or(false);
  } else if (!is_out_in) {
    here = *turned;
  }
  if (package == nullptr) return here;
  return here != (is_model ? is_turned_in_model(facts, *package, parameter).value_or(false) : *turned);
}

/// The view's tensors, transposed where `package` (null: Hugging Face) has them so, and with prefix `to` for prefix
/// `from` in the names of parameters. Not sorted.
plan::TensorMap renamed_and_turned(const plan::Catalog& view, const Source& source, const PaddlePackage* package,
                                   const std::string& from, const std::string& to) {
  const plan::NumbersByName numbers = plan::numbers_by_name(view.tensors);
  const std::string_view reader = package != nullptr ? package->name : "Hugging Face";
  plan::TensorMap out;
  for (std::uint32_t i = 0; i < view.tensors.size(); ++i) {
    plan::CatalogTensor tensor = view.tensors[i];
    const std::string old(paddle_parameter_of(tensor.section, tensor.name));
    const bool is_renamed = !from.empty() && old.starts_with(from);
    const std::string parameter = is_renamed ? to + old.substr(from.size()) : old;
    if (is_to_be_turned(tensor, parameter, source, package)) {
      refuse_codes(view, numbers, tensor, reader);
      out.pieces[i] = {plan::reversed(i, tensor.shape)};
      std::swap(tensor.shape[0], tensor.shape[1]);
    }
    tensor.name.replace(0, old.size(), parameter);
    out.catalog.tensors.push_back(std::move(tensor));
    out.sources.push_back(i);
  }
  return out;
}

/// Adds states and master weights of a tied weight under the name without them: several processes look up both names.
void add_tied(plan::TensorMap& out, Notes& notes) {
  std::string embedding;
  std::set<std::pair<std::string, std::string>> names;
  for (const auto& tensor : out.catalog.tensors) {
    names.emplace(tensor.section, tensor.name);
    if (tensor.section == "model" && tensor.name.ends_with(kPaddleEmbedding)) embedding = tensor.name;
  }
  if (embedding.empty() || !names.contains({"model", std::string(kPaddleHead)})) return;
  std::size_t added = 0;
  const std::size_t count = out.catalog.tensors.size();
  for (std::size_t i = 0; i < count; ++i) {
    plan::CatalogTensor twin = out.catalog.tensors[i];
    if (twin.section != kOptimizer && twin.section != kMasters) continue;
    const std::string parameter(paddle_parameter_of(twin.section, twin.name));
    if (parameter != embedding && parameter != kPaddleHead) continue;
    twin.name.replace(0, parameter.size(), parameter == kPaddleHead ? embedding : std::string(kPaddleHead));
    if (!names.emplace(twin.section, twin.name).second) continue;
    out.catalog.tensors.push_back(std::move(twin));
    const auto turned = out.pieces.find(static_cast<std::uint32_t>(i));
    if (turned != out.pieces.end()) out.pieces[static_cast<std::uint32_t>(out.sources.size())] = turned->second;
    out.sources.push_back(out.sources[i]);
    ++added;
  }
  if (added == 0) return;
  notes.inform(
      fmt::format("{} of the tied weight written under both of its names, which a resume on several cards "
                  "looks for",
                  base::counted(added, "tensor is", "tensors are")));
}

class PaddleForm final : public Form {
 public:
  explicit PaddleForm(const PaddlePackage& package)
      : package_(package),
        traits_{.word = package.word,
                .what = package.files,
                .holds_codes = true,
                .reads_config = true,
                .asks_processes = true} {}

  [[nodiscard]] const FormTraits& traits() const override { return traits_; }

  void check_options(const Quantisation& quantisation, std::uint64_t processes) const override;

  [[nodiscard]] plan::LayoutOptions layout(const FileOptions& files) const override {
    return paddle_layout(package_, files);
  }

  [[nodiscard]] std::unique_ptr<const CheckedState> check(const plan::PackedCatalog& catalog,
                                                          const CatalogShare& share) const override {
    return std::make_unique<CheckedForPaddle>(package_, check_for_paddle(catalog, package_, share));
  }

  [[nodiscard]] std::string why_decoded(const StateToWrite& state, std::uint64_t processes) const override;

  [[nodiscard]] plan::TensorMap map(const plan::Catalog& view, const StateToWrite& state, std::uint64_t processes,
                                    Notes& notes) const override;

  [[nodiscard]] plan::FileLayout lay_out(const plan::Catalog& catalog, const FormRequest& request,
                                         const StateToWrite& /*state*/, Notes& /*notes*/) const override {
    FileOptions files = request.files;
    if (request.processes == 1) files.max_bytes = std::numeric_limits<std::uint64_t>::max();
    files.metadata.clear();
    return plan::lay_out_hf(catalog, layout(files));
  }

 private:
  const PaddlePackage& package_;
  FormTraits traits_;
};

void PaddleForm::check_options(const Quantisation& quantisation, std::uint64_t processes) const {
  for (const auto& [section, codec] : quantisation.codecs) {
    if (quantisation.disable_ckpt_quant || codec == "off") continue;
    if (!is_paddle_codec(codec)) {
      throw Error(ErrorKind::kUsage,
                  fmt::format("{} reads no moments in {}: give paddle-o1, paddle-o2 or off, or leave the codec out",
                              package_.name, base::printable(codec)));
    }
    if (section != kOptimizer) {
      throw Error(ErrorKind::kUsage,
                  fmt::format("{} reads codes in section optimizer alone: give no codec for section {}", package_.name,
                              base::printable(section)));
    }
    if (processes != 1) continue;
    throw Error(ErrorKind::kUsage,
                fmt::format("{} on one card reads no quantised moments: leave --quant out", package_.name));
  }
  if (quantisation.skip_save_model_weight) {
    throw Error(ErrorKind::kUsage, fmt::format("files of {} are written with the model's weights: leave "
                                               "skip_save_model_weight out",
                                               package_.name));
  }
  if (!quantisation.remove_master_weight) return;
  if (package_.linears_out_in) {
    throw Error(ErrorKind::kUsage,
                fmt::format("master weights of {} are transposed, and loads do not make them from the model's weights: "
                            "leave remove_master_weight out",
                            package_.name));
  }
  if (processes == 1) {
    throw Error(ErrorKind::kUsage, fmt::format("{} on one card makes no master weights from the model's: leave "
                                               "remove_master_weight out",
                                               package_.name));
  }
}

std::string PaddleForm::why_decoded(const StateToWrite& state, std::uint64_t processes) const {
  if (state.quantised.empty() && !state.omits_weights) return {};
  std::set<std::string> codecs;
  for (const auto& moments : state.quantised) codecs.insert(moments.codec);
  const base::Json config = config_of(state);
  const bool is_misread = std::ranges::any_of(state.quantised, [&](const auto& moments) {
    return has_misread_scales(facts_of(config, moments.first), paddle_parameter_of(kOptimizer, moments.first));
  });
  const bool is_sliced =
      std::ranges::any_of(state.quantised, [](const auto& moments) { return !moments.boxes.empty(); });
  const bool is_readable = codecs.empty() || (codecs.size() == 1 && is_paddle_codec(*codecs.begin()));
  if (processes != 1 && is_readable && !is_misread && !is_sliced && !state.omits_weights) return {};
  return fmt::format("moments and weights are written in full: {}",
                     processes == 1        ? "a resume on one card reads no quantised ones"
                     : is_misread          ? "its loader takes wrong scales of fused weights under tensor parallelism"
                     : is_sliced           ? "scales are those of slices, not of whole tensors"
                     : state.omits_weights ? "weights that were left out are not made by its loader"
                                           : "its loader does not know these codes");
}

plan::TensorMap PaddleForm::map(const plan::Catalog& view, const StateToWrite& state, std::uint64_t processes,
                                Notes& notes) const {
  const base::Json config = config_of(state);
  if (std::ranges::all_of(view.tensors, [](const auto& tensor) { return tensor.section == format::kRankSection; })) {
    throw Error(ErrorKind::kUsage,
                fmt::format("'{}' has no tensors, and {} resumes from no such directory: convert it to "
                            "hf or shards",
                            base::printable(state.place), package_.name));
  }
  const auto is_of_adapter = [](const plan::CatalogTensor& tensor) { return tensor.section == kAdapter; };
  if (!paddle_state_of(state) && std::ranges::any_of(view.tensors, is_of_adapter)) {
    throw Error(
        ErrorKind::kUsage,
        fmt::format("'{}' has an adapter of PEFT, which does not become one of {}; --section converts the others",
                    base::printable(state.place), package_.name));
  }
  const Source source = source_of(view, state, config, package_);
  refuse_other_weights(view, source, package_);
  const FamilyPrefixes prefixes = prefixes_of(source.facts, package_);
  plan::TensorMap renamed = renamed_and_turned(view, source, &package_, prefixes.other, prefixes.own);
  if (is_tied(source.facts) && processes != 1) add_tied(renamed, notes);
  return plan::in_catalog_order(std::move(renamed));
}

/// Whether a weight is called as one of the family: one of the model or, if there is no model, one that an optimizer or
/// master weights are of. Also true if the family has no prefix of its own, or there is nothing to judge by.
bool is_named_as(const plan::Catalog& view, const FamilyPrefixes& prefixes) {
  const auto is_of_model = [](const auto& tensor) { return tensor.section == "model"; };
  const bool has_model = std::ranges::any_of(view.tensors, is_of_model);
  bool has_any = false;
  for (const auto& tensor : view.tensors) {
    const bool is_state = tensor.section == kOptimizer || tensor.section == kMasters;
    if (has_model ? !is_of_model(tensor) : !is_state) continue;
    has_any = true;
    const std::string_view parameter = paddle_parameter_of(tensor.section, tensor.name);
    if (parameter.starts_with(prefixes.own) || parameter.starts_with(prefixes.other)) return true;
  }
  return !has_any;
}

}  // namespace

std::optional<plan::TensorMap> paddle_in_hugging_face(const plan::Catalog& view, const StateToWrite& state) {
  if (!paddle_state_of(state)) return std::nullopt;
  const PaddlePackage& nlp = *paddle_package("paddlenlp");
  const Source source = source_of(view, state, config_of(state), nlp);
  const auto refusal = [&](const std::string& why) { return no_model_of_transformers(state, why); };
  const FamilyPrefixes prefixes = prefixes_of(source.facts, nlp);
  if (is_renamed(source.facts)) {
    throw refusal(fmt::format("the weights of {} have other names there, and are not renamed",
                              base::printable(source.facts.family)));
  }
  if (source.facts.family.empty() && !source.model_out_in) throw refusal(why_unknown(source.facts));
  for (const auto& tensor : view.tensors) {
    const std::string name = base::printable(tensor.name);
    if (tensor.section == kAdapter) {
      throw refusal(fmt::format("'{}' is of an adapter of PaddlePaddle, which PEFT does not load", name));
    }
    const auto marks = marks_of(source.facts, paddle_parameter_of(tensor.section, tensor.name));
    if (marks && has_mark(*marks, 'f')) throw refusal(fmt::format("'{}' is several weights in one", name));
  }
  if (!is_named_as(view, prefixes)) {
    throw refusal(fmt::format("no weight is called as those of {}", base::printable(source.facts.family)));
  }
  return plan::in_catalog_order(renamed_and_turned(view, source, nullptr, prefixes.own, prefixes.other));
}

std::span<const Form* const> paddle_forms() {
  static const PaddleForm nlp(*paddle_package("paddlenlp"));
  static const PaddleForm formers(*paddle_package("paddleformers"));
  static const std::array<const Form*, 2> forms = {&nlp, &formers};
  return forms;
}

}  // namespace cairn::interop
