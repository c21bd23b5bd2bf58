// The steps by which all ranks get the whole catalog, although each has only some tensors: one rank's work between
// messages.
//
// Ranks share the sorting. A hash of a tensor's section and name chooses its home rank, which merges the ranks'
// descriptions. Homes pass their tensors on to ranks that each own a stretch of the catalog, with borders taken from a
// sample. These ranks sort and pack; the packed stretches, end to end, are the catalog. The numbered functions are
// rank-local and pure: `cairn plan` runs them for many ranks in one process. exchange_catalog() sends the messages.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/bytes.hpp"
#include "cairn/checkpoint.hpp"
#include "comm/communicator.hpp"
#include "comm/messages.hpp"
#include "plan/catalog.hpp"

namespace cairn::planning {

/// A rank's part of a save.
struct DescribedState {
  std::span<const Source> sources;
  std::span<const std::string> codings = {};  ///< CatalogTensor::coding of each source; empty list: no codings
};

/// 1. Describes each tensor of this rank, once, to its home. Throws Error(kState) if `state` contradicts itself.
comm::Messages describe_to_homes(const DescribedState& state, int rank, int ranks);

/// 2. The tensors that reached this home, one entry each, by section and name. Throws Error(kState), naming tensor and
/// ranks, if two ranks give a tensor different dtypes or shapes.
std::vector<plan::CatalogTensor> merge_described(const comm::Messages& incoming);

/// 3. A few names of the home's tensors, for all ranks. With many ranks, only some return names, to limit the samples.
/// `Tensor`: a plan::CatalogTensor, or a format::PlacedTensor of a directory that is opened.
template <class Tensor>
base::Bytes sample_names(const std::vector<Tensor>& homed, int rank, int ranks);

/// The ranks' stretches of a catalog. The samples of all ranks determine the borders, and must outlive the object.
class Stretches {
 public:
  explicit Stretches(const comm::Messages& samples);
  [[nodiscard]] std::size_t rank_of(std::string_view section, std::string_view name) const;

 private:
  std::size_t ranks_;
  std::vector<plan::CatalogKey> borders_;
};

/// 4. Messages that bring the home's tensors to the ranks that own their stretches of the catalog. `samples`: by rank.
comm::Messages spread_in_order(std::span<const plan::CatalogTensor> homed, const comm::Messages& samples);

/// 5. This rank's stretch of the catalog, packed, for all ranks. The stretches are in rank order.
base::Bytes pack_stretch(const comm::Messages& incoming);

/// 6. Catalog number of every entry of the state. Requires: the catalog has all entries.
std::vector<std::uint32_t> number_tensors(const plan::PackedCatalog& catalog, std::span<const Source> state);

/// Collective. The catalog, the same on every rank. Throws Error(kState), naming tensor and ranks, if ranks give a
/// tensor different dtypes or shapes.
plan::PackedCatalog exchange_catalog(comm::Communicator& communicator, const DescribedState& state);

}  // namespace cairn::planning
