// PaddleNLP's and PaddleFormers' files as forms: tensors with the names and the order of dimensions from which that
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
#include "interop/file_names.hpp"
#include "interop/paddle/check.hpp"
#include "interop/paddle/config.hpp"
#include "interop/paddle/files.hpp"
#include "interop/paddle/paddle.hpp"

namespace cairn::interop {
namespace {

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

/// Whether linear weights are [out, in] in the source.
struct Orders {
  bool model_out_in = false;
  bool state_out_in = false;
};

/// What the state, its config.json and a view's shapes say.
Orders orders_of(const plan::Catalog& view, const StateToWrite& source, const base::Json& config,
                 const PaddlePackage& package) {
  if (const auto found = paddle_state_of(source))
    return {found->linears_out_in.value_or(package.linears_out_in), false};
  std::optional<bool> model;
  std::optional<bool> state;
  bool has_linear = false;
  for (const auto& tensor : view.tensors) {
    const std::string_view parameter = paddle_parameter_of(tensor.section, tensor.name);
    if (tensor.section == "adapter" || !is_paddle_linear(parameter)) continue;
    has_linear = true;
    const auto found = is_out_in(parameter, tensor.shape, config);
    if (found) (tensor.section == "model" ? model : state) = found;
  }
  if (has_linear && !model && !state) {
    throw Error(ErrorKind::kUsage,
                fmt::format("nothing says whether linear weights are [in, out] or [out, in] in {}: it is no checkpoint "
                            "of PaddlePaddle, and config.json with hidden_size and intermediate_size that differ would "
                            "tell by mlp.gate_proj",
                            base::printable(source.place)));
  }
  const bool of_model = model.value_or(state.value_or(false));
  return {of_model, state.value_or(of_model)};
}

/// Adds the states of a tied weight under both of its names, which several processes look up.
void add_tied(plan::TensorMap& out, std::vector<std::string>& notes) {
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
  notes.push_back(
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
                                    std::vector<std::string>& notes) const override;

  [[nodiscard]] plan::FileLayout lay_out(const plan::Catalog& catalog, const FormRequest& request,
                                         const StateToWrite& /*state*/,
                                         std::vector<std::string>& /*notes*/) const override {
    FileOptions files = request.files;
    if (request.processes == 1) files.max_bytes = std::numeric_limits<std::uint64_t>::max();
    files.metadata.clear();
    return plan::lay_out_hf(catalog, layout(files));
  }

 private:
  [[nodiscard]] std::string name_of(const std::string& name, const base::Json& config) const;

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
  if (!quantisation.remove_master_weight && !quantisation.skip_save_model_weight) return;
  throw Error(ErrorKind::kUsage, fmt::format("{}'s files are written with all weights: leave remove_master_weight and "
                                             "skip_save_model_weight out",
                                             package_.name));
}

std::string PaddleForm::why_decoded(const StateToWrite& state, std::uint64_t processes) const {
  if (state.quantised.empty() && !state.omits_weights) return {};
  std::set<std::string> codecs;
  for (const auto& moments : state.quantised) codecs.insert(moments.codec);
  const bool is_misread =
      std::ranges::any_of(state.quantised, [](const auto& moments) { return has_misread_scales(moments.parts.at(0)); });
  const bool is_sliced =
      std::ranges::any_of(state.quantised, [](const auto& moments) { return !moments.boxes.empty(); });
  const bool is_readable = codecs.empty() || (codecs.size() == 1 && is_paddle_codec(*codecs.begin()));
  if (processes != 1 && is_readable && !is_misread && !is_sliced && !state.omits_weights) return {};
  return fmt::format("moments and weights are written in full: {}",
                     processes == 1 ? "a resume on one card reads no quantised ones"
                     : is_misread   ? "its loader takes wrong scales of fused gate and up under tensor parallelism"
                     : is_sliced    ? "scales are those of slices, not of whole tensors"
                     : state.omits_weights ? "weights that were left out are not made by its loader"
                                           : "its loader does not know these codes");
}

std::string PaddleForm::name_of(const std::string& name, const base::Json& config) const {
  const auto prefixes = prefixes_of(package_, config);
  if (!prefixes || !name.starts_with(prefixes->other)) return name;
  return prefixes->own + name.substr(prefixes->other.size());
}

plan::TensorMap PaddleForm::map(const plan::Catalog& view, const StateToWrite& state, std::uint64_t processes,
                                std::vector<std::string>& notes) const {
  const base::Json config = config_of(state);
  if (std::ranges::all_of(view.tensors, [](const auto& tensor) { return tensor.section == format::kRankSection; })) {
    throw Error(ErrorKind::kUsage,
                fmt::format("'{}' has no tensors, and {} resumes from no such directory: convert it to "
                            "hf or shards",
                            base::printable(state.place), package_.name));
  }
  const Orders orders = orders_of(view, state, config, package_);
  const std::string own = text_of_config(config, "model_type") + ".";
  // Of PaddleNLP's own names, as in its unified checkpoints: its head is as it is.
  const bool is_of_nlp = own.size() > 1 && std::ranges::any_of(view.tensors, [&](const auto& tensor) {
                           return tensor.section == "model" && tensor.name.starts_with(own);
                         });
  plan::TensorMap renamed;
  for (std::uint32_t i = 0; i < view.tensors.size(); ++i) {
    plan::CatalogTensor tensor = view.tensors[i];
    const std::string old(paddle_parameter_of(tensor.section, tensor.name));
    const std::string parameter = name_of(old, config);
    bool transposed = false;
    if (tensor.section != "adapter" && is_paddle_linear(parameter)) {
      const bool is_model = tensor.section == "model";
      transposed = is_model ? orders.model_out_in != package_.linears_out_in : orders.state_out_in;
    }
    // PaddleNLP has the head as a linear layer, PaddleFormers and Hugging Face as the embedding.
    const bool keeps_head = is_of_nlp && package_.word == "paddlenlp";
    if (parameter == kPaddleHead && !has_tied_weights(config) && !keeps_head) {
      const auto vocabulary = size_of_config(config, "vocab_size");
      const auto hidden = size_of_config(config, "hidden_size");
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
    if (transposed) {
      renamed.pieces[i] = {plan::reversed(i, tensor.shape)};
      std::swap(tensor.shape[0], tensor.shape[1]);
    }
    tensor.name.replace(0, old.size(), parameter);
    renamed.catalog.tensors.push_back(std::move(tensor));
    renamed.sources.push_back(i);
  }
  if (has_tied_weights(config) && processes != 1) add_tied(renamed, notes);
  return plan::in_catalog_order(std::move(renamed));
}

}  // namespace

std::span<const Form* const> paddle_forms() {
  static const PaddleForm nlp(*paddle_package("paddlenlp"));
  static const PaddleForm formers(*paddle_package("paddleformers"));
  static const std::array<const Form*, 2> forms = {&nlp, &formers};
  return forms;
}

}  // namespace cairn::interop
