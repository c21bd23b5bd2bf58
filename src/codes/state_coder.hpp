// Makes the state to save from the state of a trainer: elides some weights, and codes moments.
//
// The codes of this rank stay in host memory until they are written: 2.1 (q8) or 1.2 (q4) bytes for each pair of values
// that the rank codes, which has 8 bytes uncoded. Options::memory_budget_bytes does not include this memory.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/json.hpp"
#include "cairn/checkpoint.hpp"
#include "codes/coding_plan.hpp"
#include "codes/coding_report.hpp"
#include "codes/elided.hpp"
#include "codes/piece_coder.hpp"
#include "comm/communicator.hpp"

namespace cairn::codes {

/// The state to save. Pointers of the sources refer to the trainer's memory and to `pieces`.
struct CodedState {
  std::vector<Source> sources;
  std::vector<std::string> codings;  ///< CatalogTensor::coding of each source (plan/catalog.hpp)
  std::vector<CodedPiece> pieces;
  CodingReport errors;
  std::vector<std::string> warnings;  ///< about options without effect; only from the call that made the plan
};

/// A box of a moment that other ranks also hold.
struct MomentReplica {
  plan::MemoryBox box;
  std::uint32_t source = 0;  ///< number of the moment in the given state
  std::uint64_t moment = 0;  ///< the same number on all ranks: even for a first moment, odd for a second moment
  plan::Replica replica;
};

/// Keeps its plan of a state for the next save of the same state.
class StateCoder {
 public:
  /// Whether these options can change a state.
  static bool is_needed(const Quantisation& options);

  /// Collective. `is_known`: planning::describe() gives the same bytes as for the last call, on every rank.
  /// Throws kUsage or kState, naming the tensor, for moments that cannot be coded, before anything is written.
  CodedState code(comm::Communicator& communicator, std::span<const Source> state, const Quantisation& options,
                  bool is_known);

  /// Rank-local, after code() for this state: replicas of the moments before coding, in an order that all ranks share.
  [[nodiscard]] std::vector<MomentReplica> replicas(std::span<const Source> state) const;
  [[nodiscard]] bool has_replicas() const { return plan_ && !plan_->replicas.empty(); }

  /// The manifest's entries `quantisation` (section -> codec) and `rebuilt`.
  [[nodiscard]] base::Json quantisation() const;
  [[nodiscard]] const base::Json& rebuilt() const { return kept_.rebuilt; }
  /// After code(): CodingPlan::spared_bytes.
  [[nodiscard]] std::uint64_t spared_bytes() const { return plan_ ? plan_->spared_bytes : 0; }

 private:
  Kept kept_;
  std::optional<CodingPlan> plan_;
};

}  // namespace cairn::codes
