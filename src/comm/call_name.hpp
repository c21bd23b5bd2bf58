// Detects ranks that are in different public calls (an error of the program) before they exchange mismatched messages,
// which MPI might accept without an error.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "comm/communicator.hpp"

namespace cairn::comm {

/// Public calls; kEnd is the end of an object that has a communicator.
enum class CallName : std::uint32_t {
  kCheckpointer,
  kSave,
  kSaveAsync,
  kPrepareAsync,
  kReleaseMemory,
  kLatest,
  kSteps,
  kTensors,
  kLoad,
  kLoadLatest,
  kLoadLatestMade,
  kLoadExtras,
  kLoadRankBlob,
  kLoadCarried,
  kStage,
  kLoadFrom,
  kEnd,
};

/// Collective: the first step of a call, one reduction of two numbers. Throws AgreedError(kUsage) on all ranks if they
/// are in different calls: "rank 0 is in save, rank 1 in save_async; ...". If one of these calls is kEnd, the
/// communicator is dead from then on.
void agree_on_call(Communicator& communicator, CallName name);

/// Collective: ends the use of this communicator. Waits at most ten seconds for the other ranks, or not at all if waits
/// have no limit. If some ranks do not come, or are in a different call, the communicator is dead. Throws nothing.
void end_calls(Communicator& communicator) noexcept;

namespace internal {

/// All ranks' calls, reduced by minimum to two numbers: the first and the last CallName, each with its lowest rank.
using CallNumbers = std::array<std::uint64_t, 2>;
CallNumbers numbers_of(CallName name, int rank);

/// A disagreement between ranks about the call that they are in.
struct CallMismatch {
  std::string text;
  bool is_ended = false;  ///< whether a rank is in kEnd
};
using RankName = std::function<std::string(int rank)>;
std::optional<CallMismatch> mismatch_in(const CallNumbers& least, const RankName& name_of);

}  // namespace internal
}  // namespace cairn::comm
