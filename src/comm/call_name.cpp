#include "comm/call_name.hpp"

#include <fmt/core.h>

#include <string_view>
#include <utility>

#include "cairn/error.hpp"
#include "comm/agree.hpp"
#include "comm/mpi_communicator.hpp"

namespace cairn::comm {
namespace internal {
namespace {

constexpr unsigned kRankBits = 32;
constexpr std::uint64_t kLow = 0xffffffffU;

std::string_view text_of(CallName name) {
  switch (name) {
    case CallName::kCheckpointer: return "Checkpointer";
    case CallName::kSave: return "save";
    case CallName::kSaveAsync: return "save_async";
    case CallName::kPrepareAsync: return "prepare_async";
    case CallName::kReleaseMemory: return "release_memory";
    case CallName::kLatest: return "latest";
    case CallName::kSteps: return "steps";
    case CallName::kTensors: return "tensors";
    case CallName::kLoad: return "load";
    case CallName::kLoadLatest: return "load_latest";
    case CallName::kLoadLatestMade: return "load_latest of TargetsOf";
    case CallName::kLoadExtras: return "load_extras";
    case CallName::kLoadRankBlob: return "load_rank_blob";
    case CallName::kLoadCarried: return "load_carried";
    case CallName::kStage: return "stage";
    case CallName::kLoadFrom: return "load_from";
    case CallName::kEnd: return "~Checkpointer";
  }
  return "an unknown call";
}

}  // namespace

CallNumbers numbers_of(CallName name, int rank) {
  const auto number = static_cast<std::uint64_t>(name);
  const auto low = static_cast<std::uint64_t>(rank);
  return {number << kRankBits | low, (kLow - number) << kRankBits | low};
}

std::optional<CallMismatch> mismatch_in(const CallNumbers& least, const RankName& name_of) {
  auto first = static_cast<CallName>(least[0] >> kRankBits);
  auto second = static_cast<CallName>(kLow - (least[1] >> kRankBits));
  if (first == second) return std::nullopt;
  const bool is_ended = second == CallName::kEnd;
  auto first_rank = static_cast<int>(least[0] & kLow);
  auto second_rank = static_cast<int>(least[1] & kLow);
  if (second_rank < first_rank) {
    std::swap(first, second);
    std::swap(first_rank, second_rank);
  }
  return CallMismatch{fmt::format("{} is in {}, {} in {}; all ranks must make the same calls in the same order",
                                  name_of(first_rank), text_of(first), name_of(second_rank), text_of(second)),
                      is_ended};
}

}  // namespace internal

void agree_on_call(Communicator& communicator, CallName name) {
  internal::CallNumbers least = internal::numbers_of(name, communicator.rank());
  communicator.all_reduce(least, ReduceOp::kMin);
  const auto mismatch = internal::mismatch_in(least, [&](int rank) { return communicator.rank_name(rank); });
  if (!mismatch) return;
  const auto liveness = communicator.liveness();
  if (auto* mpi = dynamic_cast<internal::MpiLiveness*>(liveness.get()); mpi != nullptr && mismatch->is_ended) {
    mpi->lose(mismatch->text);
  }
  throw AgreedError(ErrorKind::kUsage, mismatch->text);
}

void end_calls(Communicator& communicator) noexcept {
  if (auto* mpi = dynamic_cast<internal::MpiCommunicator*>(&communicator)) mpi->close();
}

}  // namespace cairn::comm
