#include "interop/form.hpp"

#include <utility>

namespace cairn::interop {

CatalogShare share_of_catalog(const plan::PackedCatalog& catalog, int rank, int ranks) {
  const auto begin_of = [&](int part) {
    const std::uint64_t before = std::uint64_t{catalog.size()} * static_cast<std::uint64_t>(part);
    return static_cast<std::uint32_t>(before / static_cast<std::uint64_t>(ranks));
  };
  return {begin_of(rank), begin_of(rank + 1)};
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

std::unique_ptr<const CheckedState> unchecked_state() { return std::make_unique<UncheckedState>(); }

}  // namespace cairn::interop
