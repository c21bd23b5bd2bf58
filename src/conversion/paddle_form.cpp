#include "conversion/paddle_form.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "base/text.hpp"
#include "cairn/error.hpp"
#include "format/manifest.hpp"
#include "interop/paddle/config.hpp"

namespace cairn::conversion {
namespace {

constexpr std::string_view kOptimizer = "optimizer";
constexpr std::string_view kMasters = "master_weights";

bool is_paddle_codec(std::string_view codec) { return codec == "paddle-o1" || codec == "paddle-o2"; }

}  // namespace

PaddleForm::PaddleForm(const interop::PaddlePackage& package, const opening::OpenCheckpoint& source,
                       const std::string& config, std::uint64_t cards, const std::string& quant)
    : package_(package), source_(source), cards_(cards), quant_(quant) {
  const bool has_codec = quant != "keep" && quant != "off";
  if (has_codec && cards == 1) {
    throw Error(ErrorKind::kUsage,
                fmt::format("{} on one card reads no quantised moments: leave --quant out", package.name));
  }
  if (!config.empty()) config_ = base::Json::parse(config, "config.json");
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
      source_.quantised, [](const auto& moments) { return interop::has_misread_scales(moments.parts.at(0)); });
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
  const auto prefixes = interop::prefixes_of(package_, config_);
  if (!prefixes || !name.starts_with(prefixes->other)) return name;
  return prefixes->own + name.substr(prefixes->other.size());
}

PaddleForm::Orders PaddleForm::orders_of(const plan::Catalog& view) const {
  if (has_paddle_state_) return {found_.linears_out_in.value_or(package_.linears_out_in), false};
  std::optional<bool> model;
  std::optional<bool> state;
  bool has_linear = false;
  for (const auto& tensor : view.tensors) {
    const std::string_view parameter = interop::paddle_parameter_of(tensor.section, tensor.name);
    if (tensor.section == "adapter" || !interop::is_paddle_linear(parameter)) continue;
    has_linear = true;
    const auto found = interop::is_out_in(parameter, tensor.shape, config_);
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

PaddleTensors PaddleForm::tensors_of(const plan::Catalog& view, std::vector<std::string>& notes) const {
  const Orders orders = orders_of(view);
  const std::string own = interop::text_of_config(config_, "model_type") + ".";
  // Of PaddleNLP's own names, as in its unified checkpoints: its head is as it is.
  const bool is_of_nlp = own.size() > 1 && std::ranges::any_of(view.tensors, [&](const auto& tensor) {
                           return tensor.section == "model" && tensor.name.starts_with(own);
                         });
  PaddleTensors renamed;
  for (std::uint32_t i = 0; i < view.tensors.size(); ++i) {
    plan::CatalogTensor tensor = view.tensors[i];
    const std::string old(interop::paddle_parameter_of(tensor.section, tensor.name));
    const std::string parameter = name_of(old);
    bool transposed = false;
    if (tensor.section != "adapter" && interop::is_paddle_linear(parameter)) {
      const bool is_model = tensor.section == "model";
      transposed = is_model ? orders.model_out_in != package_.linears_out_in : orders.state_out_in;
    }
    // PaddleNLP has the head as a linear layer, PaddleFormers and Hugging Face as the embedding.
    const bool keeps_head = is_of_nlp && package_.word == "paddlenlp";
    if (parameter == interop::kPaddleHead && !interop::has_tied_weights(config_) && !keeps_head) {
      const auto vocabulary = interop::size_of_config(config_, "vocab_size");
      const auto hidden = interop::size_of_config(config_, "hidden_size");
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
  return out;
}

void PaddleForm::add_tied(PaddleTensors& out, std::vector<std::string>& notes) const {
  if (!interop::has_tied_weights(config_) || cards_ == 1) return;
  std::string embedding;
  std::set<std::pair<std::string, std::string>> names;
  for (const auto& tensor : out.catalog.tensors) {
    names.emplace(tensor.section, tensor.name);
    if (tensor.section == "model" && tensor.name.ends_with(interop::kPaddleEmbedding)) embedding = tensor.name;
  }
  if (embedding.empty() || !names.contains({"model", std::string(interop::kPaddleHead)})) return;
  std::size_t added = 0;
  const std::size_t count = out.catalog.tensors.size();
  for (std::size_t i = 0; i < count; ++i) {
    plan::CatalogTensor twin = out.catalog.tensors[i];
    if (twin.section != kOptimizer && twin.section != kMasters) continue;
    const std::string parameter(interop::paddle_parameter_of(twin.section, twin.name));
    if (parameter != embedding && parameter != interop::kPaddleHead) continue;
    twin.name.replace(0, parameter.size(),
                      parameter == interop::kPaddleHead ? embedding : std::string(interop::kPaddleHead));
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

plan::FileLayout PaddleForm::lay_out(const CodedCatalog& content, FileOptions files) {
  facts_ = interop::check_for_paddle(plan::PackedCatalog(content.catalog), package_);
  if (cards_ == 1) files.max_bytes = std::numeric_limits<std::uint64_t>::max();
  files.metadata.clear();
  return plan::lay_out_hf(content.catalog, interop::paddle_layout(package_, files));
}

std::optional<std::uint64_t> PaddleForm::step() const {
  if (!source_.manifest) return source_.about.step;
  if (!source_.manifest->has_step) return std::nullopt;
  return source_.manifest->step;
}

interop::PaddleFiles PaddleForm::files_beside(const CodedCatalog& content, const plan::FileLayout& layout,
                                               std::vector<std::string> carried) const {
  interop::PaddleBeside beside;
  beside.found = found_;
  // Codes that were decoded, here or on the way here, count as resumed from.
  beside.lost_codes = found_.stage != "O0" && (facts_.stage == "O0" || !content.pairs.empty());
  beside.carried = std::move(carried);
  beside.config = config_;
  beside.step = step();
  if (const std::string* text = value("scheduler")) beside.scheduler = *text;
  beside.cards = cards_;
  return interop::paddle_files(package_, facts_, layout.index_files, beside);
}

}  // namespace cairn::conversion
