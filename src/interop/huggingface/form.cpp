// Hugging Face file sets, the default form of a checkpoint.
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

#include "base/text.hpp"
#include "interop/dialect.hpp"
#include "interop/huggingface/hugging_face.hpp"

namespace cairn::interop {
namespace {

/// The dialect of the system whose state is to get Hugging Face's names and orders; null: the state keeps its own.
const Dialect* system_of(const StateToWrite& state) {
  if (state.place.empty() || state.keeps_names) return nullptr;
  const auto is_marked = [&](const Dialect* dialect) {
    return !dialect->key_of_states().empty() && state.values.contains(std::string(dialect->key_of_states()));
  };
  const auto found = std::ranges::find_if(dialects(), is_marked);
  return found == dialects().end() ? nullptr : *found;
}

/// A part of names that transformers does not look for, and the programs that use it.
struct OtherName {
  std::string_view part;
  std::string_view programs;
};
constexpr std::array<OtherName, 9> kOtherNames = {{
    {".attention.wq.", "the programs of Meta and Mistral, and of torchtitan"},
    {".self_attention.linear_qkv.", "Megatron Core and of programs that follow it"},
    {".self_attention.linear_proj.", "Megatron Core and of programs that follow it"},
    {"_orig_mod.", "torch.compile"},
    {"_fsdp_wrapped_module.", "FSDP"},
    {"_checkpoint_wrapped_module.", "PyTorch's checkpoint_wrapper"},
    {"_forward_module.", "Lightning"},
    {"base_model.model.", "an adapter, which PEFT looks for in adapter_model.safetensors"},
    {".lora_A.", "an adapter, which PEFT looks for in adapter_model.safetensors"},
}};
constexpr std::string_view kWrapped = "module.";  // DistributedDataParallel: in front of all names

/// Refuses weights that transformers would not find: it would start with random ones.
void refuse_other_names(const plan::Catalog& view, const StateToWrite& state) {
  const plan::CatalogTensor* first = nullptr;
  bool is_wrapped = true;
  for (const plan::CatalogTensor& tensor : view.tensors) {
    if (tensor.section != "model") continue;
    if (first == nullptr) first = &tensor;
    is_wrapped = is_wrapped && tensor.name.starts_with(kWrapped);
    const std::string with_dot = "." + std::string(tensor.name);
    const auto is_in_name = [&](const OtherName& other) { return with_dot.find(other.part) != std::string::npos; };
    const auto* const found = std::ranges::find_if(kOtherNames, is_in_name);
    if (found == kOtherNames.end()) continue;
    throw no_model_of_transformers(state,
                                   fmt::format("'{}' is a name of {}", base::printable(tensor.name), found->programs));
  }
  if (first == nullptr || !is_wrapped) return;
  throw no_model_of_transformers(
      state, fmt::format("all names begin with '{}', as '{}' does", kWrapped, base::printable(first->name)));
}

class MappedState final : public CheckedState {
 public:
  [[nodiscard]] std::string problem() const override { return {}; }
  [[nodiscard]] FormFiles files_beside(std::map<std::string, std::string> indexes, const StateToWrite& state,
                                       std::uint64_t /*processes*/) const override {
    FormFiles files{std::move(indexes), {}, {}};
    if (const Dialect* system = system_of(state)) files.values[std::string(system->key_of_states())] = "";
    return files;
  }
};

class HuggingFaceForm final : public PlainForm {
 public:
  [[nodiscard]] const FormTraits& traits() const override {
    static constexpr FormTraits kTraits{
        .word = "hf", .what = "Hugging Face files", .holds_codes = true, .keeps_names = true, .keeps_metadata = true};
    return kTraits;
  }

  [[nodiscard]] bool reads_config(const StateToWrite& state) const override { return system_of(state) != nullptr; }

  [[nodiscard]] std::string why_decoded(const StateToWrite& state, std::uint64_t /*processes*/) const override {
    const auto has_scales_of_boxes = [](const QuantisedMoments& moments) { return !moments.boxes.empty(); };
    const auto by_box = std::ranges::count_if(state.quantised, has_scales_of_boxes);
    if (by_box == 0) {
      if (system_of(state) == nullptr || (state.quantised.empty() && !state.omits_weights)) return {};
      return "moments and weights are written in full, since their order of dimensions becomes Hugging Face's";
    }
    return fmt::format(
        "{} have scales of the slices that ranks held, which files of whole tensors cannot have: all "
        "moments are decoded",
        base::counted(static_cast<std::uint64_t>(by_box), "pair of moments", "pairs of moments"));
  }

  [[nodiscard]] std::unique_ptr<const CheckedState> check(const plan::PackedCatalog& /*catalog*/,
                                                          const CatalogShare& /*share*/) const override {
    return std::make_unique<MappedState>();
  }

  [[nodiscard]] plan::TensorMap map(const plan::Catalog& view, const StateToWrite& state, std::uint64_t /*processes*/,
                                    Notes& notes) const override {
    const Dialect* const system = system_of(state);
    auto map = system == nullptr ? std::nullopt : system->map_to_hugging_face(view, state);
    if (!map && state.is_foreign && !state.keeps_names) refuse_other_names(view, state);
    if (!map) return plan::as_they_are(view);
    notes.inform(fmt::format(
        "tensors get Hugging Face's names and order of dimensions (from {}; --keep-names keeps both)", system->name()));
    return *std::move(map);
  }

  [[nodiscard]] plan::FileLayout lay_out(const plan::Catalog& catalog, const FormRequest& request,
                                         const StateToWrite& /*state*/, Notes& /*notes*/) const override {
    plan::FileLayout files = plan::lay_out_hf(catalog, layout(request.files));
    if (files.index_files.contains("adapter_model.safetensors.index.json")) {
      throw Error(ErrorKind::kUsage,
                  "an adapter is one file for PEFT, and would become several: give a larger --max-file-size");
    }
    return files;
  }
};

}  // namespace

const Form& hugging_face_form() {
  static const HuggingFaceForm form;
  return form;
}

}  // namespace cairn::interop
