#include "interop/form.hpp"

#include <fmt/core.h>

#include <utility>

#include "base/text.hpp"

namespace cairn::interop {

CatalogShare share_of_catalog(const plan::PackedCatalog& catalog, int rank, int ranks) {
  const auto begin_of = [&](int part) {
    const std::uint64_t before = std::uint64_t{catalog.size()} * static_cast<std::uint64_t>(part);
    return static_cast<std::uint32_t>(before / static_cast<std::uint64_t>(ranks));
  };
  return {begin_of(rank), begin_of(rank + 1)};
}

Error no_model_of_transformers(const StateToWrite& state, std::string_view why) {
  return {ErrorKind::kUsage,
          fmt::format("'{}' does not become a model of transformers: {}; --keep-names converts it as it is",
                      base::printable(state.place), why)};
}

namespace {

class UncheckedState final : public CheckedState {
 public:
  [[nodiscard]] std::string problem() const override { return {}; }
  [[nodiscard]] FormFiles files_beside(std::map<std::string, std::string> indexes, const StateToWrite& /*state*/,
                                       std::uint64_t /*processes*/) const override {
    return {std::move(indexes), {}, {}};
  }
};

}  // namespace

plan::LayoutOptions PlainForm::layout(const FileOptions& files) const {
  return {.max_file_bytes = files.max_bytes, .align_bytes = files.align_bytes, .metadata = files.metadata};
}

std::unique_ptr<const CheckedState> PlainForm::check(const plan::PackedCatalog& /*catalog*/,
                                                     const CatalogShare& /*share*/) const {
  return std::make_unique<UncheckedState>();
}

plan::TensorMap PlainForm::map(const plan::Catalog& view, const StateToWrite& /*state*/, std::uint64_t /*processes*/,
                               Notes& /*notes*/) const {
  return plan::as_they_are(view);
}

}  // namespace cairn::interop
