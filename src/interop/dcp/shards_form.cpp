// torch DCP's sharded safetensors as a form: every rank of a layout has separate files.
#include <fmt/core.h>

#include <utility>

#include "base/text.hpp"
#include "cairn/error.hpp"
#include "interop/dcp/dcp.hpp"
#include "shard/model.hpp"
#include "shard/shard_map.hpp"

namespace cairn::interop {
namespace {

shard::Model model_of(const StateToWrite& state, Notes& notes) {
  try {
    if (state.config) return shard::model_from_config(*state.config);
  } catch (const Error& error) {
    throw error.with_message(fmt::format("'{}': {}", base::printable(state.place), error.what()));
  }
  notes.omit("no config.json beside the checkpoint: the model family is unknown");
  return {};
}

/// The boxes of every rank of the layout. `notes` receives the notes of the shard map.
std::vector<plan::Piece> held_by_ranks(const plan::Catalog& catalog, const shard::Layout& layout, shard::Model model,
                                       Notes& notes) {
  std::vector<std::string> sections;
  std::vector<Tensor> specs;
  for (const auto& tensor : catalog.tensors) {
    sections.push_back(tensor.section);
    specs.push_back({tensor.name, tensor.dtype, tensor.shape});
  }
  const shard::ShardMap map(layout, std::move(model), std::move(sections), std::move(specs));
  notes.omit_all(map.notes());  // each says how tensors are cut that no rule knows
  std::vector<plan::Piece> held;
  for (int rank = 0; rank < layout.world_size(); ++rank) {
    std::uint32_t local = 0;
    for (const auto& tensor : map.held_by(rank)) {
      for (const Box& box : tensor.boxes) held.push_back({tensor.tensor, local++, rank, box});
    }
  }
  return held;
}

class ShardsForm final : public PlainForm {
 public:
  [[nodiscard]] const FormTraits& traits() const override {
    static constexpr FormTraits kTraits{
        .word = "shards", .what = "shards", .is_sharded = true, .reads_config = true, .keeps_metadata = true};
    return kTraits;
  }

  [[nodiscard]] std::string why_decoded(const StateToWrite& /*state*/, std::uint64_t /*processes*/) const override {
    return {};  // the caller itself reports that the form holds no codes
  }

  [[nodiscard]] plan::FileLayout lay_out(const plan::Catalog& catalog, const FormRequest& request,
                                         const StateToWrite& state, Notes& notes) const override {
    if (!request.layout) throw Error(ErrorKind::kUsage, "converting to shards needs a layout");
    const auto ranks = shard::Layout::from_text(*request.layout);
    return plan::lay_out_shards(catalog, held_by_ranks(catalog, ranks, model_of(state, notes), notes),
                                ranks.world_size(), layout(request.files));
  }
};

}  // namespace

const Form& shards_form() {
  static const ShardsForm form;
  return form;
}

}  // namespace cairn::interop
