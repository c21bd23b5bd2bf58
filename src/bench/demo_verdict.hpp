// What all ranks together found when they compared a loaded state.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "bench/demo_state.hpp"
#include "comm/communicator.hpp"

namespace cairn::bench {

struct Verdict {
  std::uint64_t tensors = 0;  ///< of which some rank compared an element
  std::uint64_t bytes = 0;
  std::optional<HeldState::Difference> first;  ///< lowest by (tensor, element)
};

/// Collective. `tensors`: of the whole state.
Verdict reduce(comm::Communicator& communicator, const HeldState::Comparison& mine, std::size_t tensors);

/// A comparison that compared less than the whole state proves nothing: Error(kInternal).
void check_completeness(const Verdict& verdict, const DemoState& state);

/// "section model, tensor 'x', element 7: not the value that was saved".
std::string describe(const HeldState::Difference& difference, const DemoState& state);

}  // namespace cairn::bench
