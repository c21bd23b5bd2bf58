// How ranks that each know some tensors come to hold the whole catalog: the work of one rank between two messages.
//
// Numbered as they follow each other; layout_steps.hpp carries the messages. No rank sorts the whole catalog: a tensor
// goes to a home by a hash of its name, which merges what ranks say of it; homes send their tensors on to ranks that
// each have a stretch of the catalog, whose borders a sample decides; these sort and pack, and the packed stretches
// laid end to end are the catalog. Rank-local and pure: `cairn plan` runs them for any number of ranks in one process.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/bytes.hpp"
#include "cairn/checkpoint.hpp"
#include "comm/messages.hpp"
#include "plan/catalog.hpp"

namespace cairn::planning {

/// What a rank brings to a save.
struct DescribedState {
  std::span<const Source> sources;
  std::span<const std::string> codings = {};  ///< CatalogTensor::coding of each source, or none
};

/// 1. The tensors of this rank, each once, to their homes. Throws Error(kState) when `state` contradicts itself.
comm::Messages describe_to_homes(const DescribedState& state, int rank, int ranks);

/// 2. The tensors of which the home is told, each once, by section and name. Throws Error(kState), naming tensor and
/// ranks, when two ranks give a tensor different dtypes or shapes.
std::vector<plan::CatalogTensor> merge_described(const comm::Messages& incoming);

/// 3. A few names of the home's tensors, for all ranks; of few ranks only, so that all samples together stay few.
/// `Tensor`: a plan::CatalogTensor, or a format::PlacedTensor of a directory that is opened.
template <class Tensor>
base::Bytes sample_names(const std::vector<Tensor>& homed, int rank, int ranks);

/// The ranks' stretches of a catalog, whose borders the samples of all ranks decide; they must outlive it.
class Stretches {
 public:
  explicit Stretches(const comm::Messages& samples);
  [[nodiscard]] std::size_t rank_of(std::string_view section, std::string_view name) const;

 private:
  std::size_t ranks_;
  std::vector<plan::CatalogKey> borders_;
};

/// 4. The home's tensors, each to the rank whose stretch of the catalog it lies in. `samples`: by rank.
comm::Messages spread_in_order(std::span<const plan::CatalogTensor> homed, const comm::Messages& samples);

/// 5. This rank's stretch of the catalog, packed, for all ranks. Those of all ranks follow each other in rank order.
base::Bytes pack_stretch(const comm::Messages& incoming);

/// 6. Catalog number of every entry of the state. Requires: the catalog has them.
std::vector<std::uint32_t> number_tensors(const plan::PackedCatalog& catalog, std::span<const Source> state);

}  // namespace cairn::planning
