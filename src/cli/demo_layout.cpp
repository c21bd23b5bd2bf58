// Layout and rank blobs of the demonstration.
#include "cli/demo_layout.hpp"

#include <fmt/core.h>

#include "base/bytes.hpp"
#include "base/text.hpp"
#include "cairn/error.hpp"
#include "cli/arguments.hpp"
#include "shard/layout.hpp"

namespace cairn::cli {

std::string demo_layout(comm::Communicator& communicator, const std::string& argument) {
  const int ranks = communicator.size();
  if (argument.empty()) return ranks == 4 ? "tp=2,pp=2" : fmt::format("fsdp={}", ranks);
  std::string text = layout_text(communicator, argument);
  const int needed = shard::Layout::from_text(text).world_size();
  if (needed != ranks) {
    throw Error(ErrorKind::kUsage, fmt::format("layout {} is for {} ranks, but {} run; start cairn with mpirun -n {}",
                                               base::printable(text), needed, ranks, needed));
  }
  return text;
}

std::vector<std::byte> demo_blob(int rank, int size) {
  const std::string text = fmt::format("random state of rank {} of {}", rank, size);
  const auto bytes = base::as_bytes(text);
  return {bytes.begin(), bytes.end()};
}

}  // namespace cairn::cli
