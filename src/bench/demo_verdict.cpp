#include "bench/demo_verdict.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "base/bytes.hpp"
#include "base/text.hpp"
#include "cairn/error.hpp"

namespace cairn::bench {

Verdict reduce(comm::Communicator& communicator, const HeldState::Comparison& mine, std::size_t tensors) {
  std::vector<std::uint64_t> seen(tensors, 0);
  for (const std::uint32_t tensor : mine.tensors) seen[tensor] = 1;
  communicator.all_reduce(seen, comm::ReduceOp::kOr);
  Verdict out;
  out.tensors = static_cast<std::uint64_t>(std::count(seen.begin(), seen.end(), 1U));
  out.bytes = communicator.sum(mine.bytes);
  base::ByteWriter writer;
  if (mine.first) {
    writer.u64(mine.first->tensor);
    writer.u64(mine.first->element);
  }
  for (const base::Bytes& bytes : communicator.all_gather(writer.bytes())) {
    if (bytes.empty()) continue;
    base::ByteReader reader(bytes);
    const std::uint64_t tensor = reader.u64();
    const HeldState::Difference found{static_cast<std::uint32_t>(tensor), reader.u64()};
    const auto key = [](const HeldState::Difference& d) { return std::pair(d.tensor, d.element); };
    if (!out.first || key(found) < key(*out.first)) out.first = found;
  }
  return out;
}

void check_completeness(const Verdict& verdict, const DemoState& state) {
  if (verdict.tensors == state.tensors.size() && verdict.bytes >= state.bytes) return;
  throw Error(ErrorKind::kInternal,
              fmt::format("compared {} of {} tensors, {} of {} bytes: the layout leaves a part of the "
                          "state on no rank",
                          verdict.tensors, state.tensors.size(), verdict.bytes, state.bytes));
}

std::string describe(const HeldState::Difference& first, const DemoState& state) {
  return fmt::format("section {}, tensor '{}', element {}: not the value that was saved", state.sections[first.tensor],
                     base::printable(state.tensors[first.tensor].name), first.element);
}

}  // namespace cairn::bench
