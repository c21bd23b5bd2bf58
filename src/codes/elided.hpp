// Weights that a save or a conversion elides because a load can make them from other weights (options
// remove_master_weight and skip_save_model_weight).
//
// If a model weight is BF16 or F16 and the master weight of the same name and shape is F32, an option can elide one of
// the two. The manifest's `rebuilt` has the rule by which loads make it again (src/format/FORMAT.md).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/json.hpp"
#include "cairn/checkpoint.hpp"
#include "comm/communicator.hpp"
#include "plan/catalog.hpp"

namespace cairn::codes {

struct Kept {
  std::vector<std::uint32_t> numbers;         ///< numbers of the saved tensors, ascending
  base::Json rebuilt = base::Json::object();  ///< empty when nothing was elided
  std::string idle = {};                      ///< the reason why an option elides nothing; otherwise empty
};

/// Throws Error(kUsage) if the options would elide both weights.
void check_elided(const Quantisation& options);

/// Collective, because a rank can hold a master weight without its model weight. Kept::numbers are numbers of sources.
/// Throws Error(kUsage) if both weights, or model weights of two dtypes, would be elided.
Kept elide(comm::Communicator& communicator, std::span<const Source> state, const Quantisation& options);

/// Rank-local: elides weights of a whole catalog, by the same rule. Kept::numbers are numbers of the catalog's tensors.
Kept elide(const plan::Catalog& catalog, const Quantisation& options);

}  // namespace cairn::codes
