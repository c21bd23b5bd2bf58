// A made-up system, with the minimum of code that a dialect and a form need. Its weights are called "made.<name>",
// its matrices are transposed, and it has one additional file, made_up.json.
#include "made_up.hpp"

#include <algorithm>
#include <array>

#include "interop/data_set.hpp"
#include "interop/dialect.hpp"

namespace cairn::interop {
namespace {

constexpr const char* kMark = "made_up.json";

class CheckedMadeUp final : public CheckedState {
 public:
  [[nodiscard]] std::string problem() const override { return {}; }
  [[nodiscard]] FormFiles files_beside(std::map<std::string, std::string> indexes, const StateToWrite& state,
                                       std::uint64_t /*processes*/) const override {
    FormFiles files{std::move(indexes), {{"made_up", "1"}}, {}};
    files.texts[kMark] = "{\"step\": " + std::to_string(state.step.value_or(0)) + "}";
    return files;
  }
};

class MadeUpForm final : public Form {
 public:
  [[nodiscard]] const FormTraits& traits() const override {
    static constexpr FormTraits kTraits{.word = "made-up", .what = "made-up files", .holds_codes = true};
    return kTraits;
  }
  void check_options(const Quantisation& /*quantisation*/, std::uint64_t /*processes*/) const override {}
  [[nodiscard]] plan::LayoutOptions layout(const FileOptions& files) const override {
    return {.max_file_bytes = files.max_bytes, .align_bytes = files.align_bytes};
  }
  [[nodiscard]] std::unique_ptr<const CheckedState> check(const plan::PackedCatalog& /*catalog*/,
                                                          const CatalogShare& /*share*/) const override {
    return std::make_unique<CheckedMadeUp>();
  }
  [[nodiscard]] std::string why_decoded(const StateToWrite& /*state*/, std::uint64_t /*processes*/) const override {
    return {};
  }
  [[nodiscard]] plan::TensorMap map(const plan::Catalog& view, const StateToWrite& /*state*/,
                                    std::uint64_t /*processes*/, Notes& /*notes*/) const override {
    if (made_up_map()) return made_up_map()(view);
    plan::TensorMap out = plan::as_they_are(view);  // the order stays the same if all names get one prefix
    for (std::uint32_t i = 0; i < out.catalog.tensors.size(); ++i) {
      plan::CatalogTensor& tensor = out.catalog.tensors[i];
      tensor.name.insert(0, "made.");
      if (tensor.shape.size() == 2) out.pieces[i] = {plan::reversed(i, tensor.shape)};
      std::ranges::reverse(tensor.shape);
    }
    return out;
  }
  [[nodiscard]] plan::FileLayout lay_out(const plan::Catalog& catalog, const FormRequest& request,
                                         const StateToWrite& /*state*/, Notes& /*notes*/) const override {
    return plan::lay_out_hf(catalog, layout(request.files));
  }
};

class MadeUp final : public Dialect {
 public:
  [[nodiscard]] std::string_view name() const override { return "Made up"; }
  [[nodiscard]] bool recognises(Reading& reading) const override { return reading.directory().others.contains(kMark); }
  void describe(Reading& reading, Recognised& out) const override {
    read_sets(reading, out, [](const DataSet&) { return IndexRules{}; });
  }
  void tell(Reading& /*reading*/, About& out) const override { out.sources.emplace_back(kMark); }
  [[nodiscard]] std::span<const Form* const> forms() const override {
    static const MadeUpForm form;
    static const std::array<const Form*, 1> kForms = {&form};
    return kForms;
  }
};

}  // namespace

std::function<plan::TensorMap(const plan::Catalog&)>& made_up_map() {
  static std::function<plan::TensorMap(const plan::Catalog&)> map;
  return map;
}

const Dialect& made_up_dialect() {
  static const MadeUp dialect;
  return dialect;
}

}  // namespace cairn::interop
