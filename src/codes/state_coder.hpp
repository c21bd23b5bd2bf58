// Makes of the state that a trainer holds the one that is saved: some weights elided, moments as codes.
//
// The codes of this rank are held in host memory until they are written: 1.06 (q8) or 0.59 (q4) of the 8 bytes that the
// two moments of an element have, for what the rank codes. That is on top of Options::memory_budget_bytes.
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

/// What is saved. Pointers of the sources lead into the trainer's memory and into `pieces`.
struct CodedState {
  std::vector<Source> sources;
  std::vector<std::string> codings;  ///< of each source (plan/catalog.hpp), or empty
  std::vector<CodedPiece> pieces;
  CodingReport errors;
  std::vector<std::string> warnings;  ///< of codecs that code nothing; each once in the life of a StateCoder
};

/// A box of a moment that other ranks hold as well.
struct MomentReplica {
  plan::MemoryBox box;
  std::uint32_t source = 0;  ///< number of the moment in the state that was given
  std::uint64_t moment = 0;  ///< the same number on all ranks: 2 for each first moment, the second one's is odd
  plan::Replica replica;
};

/// Keeps what it found out about a state for the next save of the same.
class StateCoder {
 public:
  /// Whether these options change a state at all.
  static bool is_needed(const Quantisation& options);

  /// Collective. `is_known`: sections, names, boxes and options are those of the last call, on every rank. Throws
  /// kUsage or kState, naming the tensor, for what cannot be coded; nothing has been written then.
  CodedState code(comm::Communicator& communicator, std::span<const Source> state, const Quantisation& options,
                  bool is_known);

  /// Rank-local, after code() of this state: what it coded, as it was before, in an order that is the same on all ranks.
  [[nodiscard]] std::vector<MomentReplica> replicas(std::span<const Source> state) const;
  [[nodiscard]] bool has_replicas() const { return plan_ && !plan_->replicas.empty(); }

  /// For the manifest: section -> codec, and `rebuilt`.
  [[nodiscard]] base::Json quantisation() const;
  [[nodiscard]] const base::Json& rebuilt() const { return kept_.rebuilt; }

 private:
  Kept kept_;
  std::optional<CodingPlan> plan_;
};

}  // namespace cairn::codes
