// Hugging Face file sets, the default form of a checkpoint.
#include <fmt/core.h>

#include <algorithm>

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
                                    std::vector<std::string>& notes) const override {
    const Dialect* const system = system_of(state);
    auto map = system == nullptr ? std::nullopt : system->map_to_hugging_face(view, state);
    if (!map) return plan::as_they_are(view);
    notes.push_back(fmt::format(
        "tensors get Hugging Face's names and order of dimensions (from {}; --keep-names keeps both)", system->name()));
    return *std::move(map);
  }

  [[nodiscard]] plan::FileLayout lay_out(const plan::Catalog& catalog, const FormRequest& request,
                                         const StateToWrite& /*state*/,
                                         std::vector<std::string>& /*notes*/) const override {
    return plan::lay_out_hf(catalog, layout(request.files));
  }
};

}  // namespace

const Form& hugging_face_form() {
  static const HuggingFaceForm form;
  return form;
}

}  // namespace cairn::interop
