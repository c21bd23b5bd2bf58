#include "checkpoint/left_out.hpp"

#include <fmt/format.h>

#include <numeric>
#include <optional>

#include "base/units.hpp"
#include "cairn/error.hpp"
#include "checkpoint/catalog_exchange.hpp"
#include "comm/agree.hpp"

namespace cairn::checkpoint {
namespace {

bool is_half(DType dtype) { return dtype == DType::kBF16 || dtype == DType::kF16; }

/// The dtype of the model's weight when the source is one of the two weights of a parameter that both exist.
std::optional<DType> dtype_of_pair(const Source& source, const plan::PackedCatalog& catalog) {
  const bool is_master = source.section == kMasterSection;
  if (!is_master && source.section != kModelSection) return std::nullopt;
  const auto number = catalog.find(is_master ? kModelSection : kMasterSection, source.name);
  if (!number) return std::nullopt;
  const plan::CatalogTensor other = catalog.at(*number);
  const DType model = is_master ? other.dtype : source.dtype;
  const DType master = is_master ? source.dtype : other.dtype;
  if (other.shape != source.shape || !is_half(model) || master != DType::kF32) return std::nullopt;
  return model;
}

}  // namespace

KeptState leave_out(comm::Communicator& communicator, std::span<const Source> state, const Quantisation& options) {
  KeptState out;
  if (!options.remove_master_weight && !options.skip_save_model_weight) {
    out.kept.resize(state.size());
    std::iota(out.kept.begin(), out.kept.end(), 0U);
    return out;
  }
  const char* section = options.remove_master_weight ? kMasterSection : kModelSection;
  const char* from = options.remove_master_weight ? kModelSection : kMasterSection;
  comm::agree(communicator, "leave out weights", [&] {
    if (!options.remove_master_weight || !options.skip_save_model_weight) return;
    throw Error(ErrorKind::kUsage,
                "remove_master_weight and skip_save_model_weight together would save no weights: choose one");
  });
  const plan::PackedCatalog catalog = exchange_catalog(communicator, {state});
  std::uint64_t dtypes = 0;  // a bit for each that was left out
  comm::agree(communicator, "leave out weights", [&] {
    for (std::uint32_t i = 0; i < state.size(); ++i) {
      const auto dtype = state[i].section == section ? dtype_of_pair(state[i], catalog) : std::nullopt;
      if (dtype) {
        dtypes |= 1ULL << static_cast<unsigned>(*dtype);
      } else {
        out.kept.push_back(i);
      }
    }
  });
  std::uint64_t all[] = {dtypes};
  communicator.all_reduce(std::span<std::uint64_t>(all), comm::ReduceOp::kOr);
  if (all[0] == 0) return out;
  const bool is_one = (all[0] & (all[0] - 1)) == 0;
  comm::agree(communicator, "leave out weights", [&] {
    if (is_one || options.remove_master_weight) return;
    throw Error(ErrorKind::kUsage,
                "skip_save_model_weight needs model weights of one dtype, but some are BF16 and some F16");
  });
  const DType dtype = options.remove_master_weight                            ? DType::kF32
                      : all[0] == 1ULL << static_cast<unsigned>(DType::kBF16) ? DType::kBF16
                                                                              : DType::kF16;
  out.rebuilt[section] = {{"from", from}, {"dtype", std::string(name_of(dtype))}};
  return out;
}

}  // namespace cairn::checkpoint
