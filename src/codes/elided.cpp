#include "codes/elided.hpp"

#include <fmt/core.h>

#include <bit>
#include <optional>

#include "cairn/error.hpp"
#include "comm/agree.hpp"
#include "format/manifest.hpp"
#include "planning/catalog_steps.hpp"

namespace cairn::codes {
namespace {

using format::kMasterWeightsSection;
using format::kModelSection;

bool is_half(DType dtype) { return dtype == DType::kBF16 || dtype == DType::kF16; }

/// Decides which tensors are elided, and records their dtypes.
class LeavingOut {
 public:
  explicit LeavingOut(const Quantisation& options)
      : is_wanted_(options.remove_master_weight || options.skip_save_model_weight),
        is_master_(options.remove_master_weight) {
    check_elided(options);
  }

  [[nodiscard]] bool is_wanted() const { return is_wanted_; }

  /// Numbers of the tensors that are not elided.
  template <class Tensors>
  std::vector<std::uint32_t> kept_of(const Tensors& tensors, const plan::PackedCatalog* catalog) {
    std::vector<std::uint32_t> kept;
    for (std::uint32_t i = 0; i < tensors.size(); ++i) {
      const auto dtype = catalog == nullptr ? std::nullopt : dtype_of_other(tensors[i], *catalog);
      if (!dtype) {
        kept.push_back(i);
        continue;
      }
      dtypes_ |= 1ULL << static_cast<unsigned>(is_master_ ? DType::kF32 : tensors[i].dtype);
    }
    return kept;
  }

  /// One bit for each dtype of an elided tensor.
  std::uint64_t& dtypes() { return dtypes_; }

  [[nodiscard]] std::string idle() const {
    if (!is_wanted_ || dtypes_ != 0) return {};
    return fmt::format(
        "Options::quantisation.{} leaves nothing out: no tensor of section {} in F32 has one of the same "
        "name and shape in section {} in BF16 or F16",
        is_master_ ? "remove_master_weight" : "skip_save_model_weight", kMasterWeightsSection, kModelSection);
  }

  [[nodiscard]] base::Json rebuilt() const {
    base::Json rebuilt = base::Json::object();
    if (dtypes_ == 0) return rebuilt;
    if ((dtypes_ & (dtypes_ - 1)) != 0) {
      throw Error(ErrorKind::kUsage,
                  "skip_save_model_weight needs model weights of one dtype, but some are BF16 and some F16");
    }
    const auto dtype = static_cast<DType>(std::countr_zero(dtypes_));
    rebuilt[std::string(is_master_ ? kMasterWeightsSection : kModelSection)] = {
        {"from", std::string(is_master_ ? kModelSection : kMasterWeightsSection)},
        {"dtype", std::string(name_of(dtype))}};
    return rebuilt;
  }

 private:
  /// The dtype of the weight from which a load can make this tensor, or nothing.
  template <class Tensor>
  [[nodiscard]] std::optional<DType> dtype_of_other(const Tensor& tensor, const plan::PackedCatalog& catalog) const {
    if (tensor.section != (is_master_ ? kMasterWeightsSection : kModelSection)) return std::nullopt;
    const auto number = catalog.find(is_master_ ? kModelSection : kMasterWeightsSection, tensor.name);
    if (!number) return std::nullopt;
    const plan::CatalogTensor other = catalog.at(*number);
    const bool fits = is_half(is_master_ ? other.dtype : tensor.dtype) &&
                      (is_master_ ? tensor.dtype : other.dtype) == DType::kF32 && other.shape == tensor.shape;
    return fits ? std::optional(other.dtype) : std::nullopt;
  }

  bool is_wanted_;
  bool is_master_;
  std::uint64_t dtypes_ = 0;
};

}  // namespace

void check_elided(const Quantisation& options) {
  if (!options.remove_master_weight || !options.skip_save_model_weight) return;
  throw Error(ErrorKind::kUsage,
              "remove_master_weight and skip_save_model_weight together would save no weights: choose one");
}

Kept elide(comm::Communicator& communicator, std::span<const Source> state, const Quantisation& options) {
  std::optional<LeavingOut> rule;
  comm::agree(communicator, "elide weights", [&] { rule.emplace(options); });
  Kept out;
  if (!rule->is_wanted()) {
    out.numbers = rule->kept_of(state, nullptr);
    return out;
  }
  const plan::PackedCatalog catalog = planning::exchange_catalog(communicator, {state});
  comm::agree(communicator, "elide weights", [&] { out.numbers = rule->kept_of(state, &catalog); });
  communicator.all_reduce(std::span(&rule->dtypes(), 1), comm::ReduceOp::kOr);
  comm::agree(communicator, "elide weights", [&] {
    out.rebuilt = rule->rebuilt();
    out.idle = rule->idle();
  });
  return out;
}

Kept elide(const plan::Catalog& catalog, const Quantisation& options) {
  LeavingOut rule(options);
  const plan::PackedCatalog packed(catalog);
  Kept out;
  out.numbers = rule.kept_of(catalog.tensors, rule.is_wanted() ? &packed : nullptr);
  out.rebuilt = rule.rebuilt();
  out.idle = rule.idle();
  return out;
}

}  // namespace cairn::codes
