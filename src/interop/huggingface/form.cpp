// Hugging Face file sets, the default form of a checkpoint.
#include <fmt/core.h>

#include <algorithm>

#include "base/text.hpp"
#include "interop/huggingface/hugging_face.hpp"

namespace cairn::interop {
namespace {

class HuggingFaceForm final : public PlainForm {
 public:
  [[nodiscard]] const FormTraits& traits() const override {
    static constexpr FormTraits kTraits{
        .word = "hf", .what = "Hugging Face files", .holds_codes = true, .keeps_metadata = true};
    return kTraits;
  }

  [[nodiscard]] std::string why_decoded(const StateToWrite& state, std::uint64_t /*processes*/) const override {
    const auto has_scales_of_boxes = [](const QuantisedMoments& moments) { return !moments.boxes.empty(); };
    const auto by_box = std::ranges::count_if(state.quantised, has_scales_of_boxes);
    if (by_box == 0) return {};
    return fmt::format(
        "{} have scales of the slices that ranks held, which files of whole tensors cannot have: all "
        "moments are decoded",
        base::counted(static_cast<std::uint64_t>(by_box), "pair of moments", "pairs of moments"));
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
