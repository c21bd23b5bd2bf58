// Weights that a save leaves out because a load makes them from others: remove_master_weight, skip_save_model_weight.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "cairn/checkpoint.hpp"
#include "comm/communicator.hpp"
#include "nlohmann/json.hpp"

namespace cairn::checkpoint {

inline constexpr const char* kModelSection = "model";
inline constexpr const char* kMasterSection = "master_weights";

struct KeptState {
  std::vector<std::uint32_t> kept;                    ///< sources that are saved, ascending
  nlohmann::json rebuilt = nlohmann::json::object();  ///< FORMAT.md, `rebuilt`; empty when nothing was left out
};

/// Collective: a rank may hold a master weight without the weight it belongs to. A weight is left out when the other section
/// has a tensor of its name and shape, the master weight in F32 and the model's in BF16 or F16. Throws Error(kUsage) when
/// both are to be left out, or when weights of two dtypes would be.
KeptState leave_out(comm::Communicator& communicator, std::span<const Source> state, const Quantisation& options);

}  // namespace cairn::checkpoint
