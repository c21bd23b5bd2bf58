#include "checkpoint/engine_choice.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "base/checked.hpp"
#include "base/text.hpp"
#include "cairn/error.hpp"
#include "comm/agree.hpp"
#include "comm/mpi.hpp"
#include "io/device_copies.hpp"
#include "io/window_pool.hpp"
#include "os/file.hpp"

namespace cairn::checkpoint {
namespace {

/// Larger windows do not make storage faster, but cost memory and, if shared, page tables.
constexpr std::uint64_t kLargestWindowBytes = 16ULL << 20;

/// For file systems with a client on each node: enough to keep the client busy, without too many lock holders.
constexpr std::uint64_t kAggregatorsPerClient = 8;

constexpr std::uint64_t kWindows = io::WindowPool::kBuffers;

/// Bytes for all bounce buffers of a node, enough to keep its disk busy while its ranks are in the exchange; then
/// limits for one rank's buffer. The first touch of memory costs time, so the buffers are no larger than needed.
constexpr std::uint64_t kBounceBytesPerNode = 128ULL << 20;
constexpr std::uint64_t kLeastBounceBytes = 8ULL << 20;
constexpr std::uint64_t kMostBounceBytes = 32ULL << 20;
/// Largest window of split_budget() with a bounce buffer, unless a block is larger; an exchange fills one window.
constexpr std::uint64_t kLargestBouncedWindowBytes = 8ULL << 20;

}  // namespace

EngineChoice choose_by_facts(const StorageFacts& facts) {
  const std::string& type = facts.file_system;
  const std::string where = fmt::format("{} on {} {}", type, facts.nodes, facts.nodes == 1 ? "node" : "nodes");
  if (os::FileSystemInfo{type}.lives_in_memory()) {
    return {"posix",
            fmt::format("{} lives in memory: plain writes are one copy, and there is no cache to go past; one writer "
                        "per file at a time, because the kernel locks a file while it copies",
                        type),
            0, true};
  }
  if (type == "lustre" || type == "gpfs" || type == "beegfs") {
    if (facts.unsafe_mpi_io_component.empty()) {
      return {"mpiio", where + ", a parallel file system: its driver in MPI-IO knows its locks and stripes",
              kAggregatorsPerClient};
    }
    return {
        "direct",
        fmt::format("{}, and MPI-IO here is {}, which loses write errors; set OMPI_MCA_io=romio321 before the program "
                    "starts to use MPI-IO",
                    where, facts.unsafe_mpi_io_component),
        kAggregatorsPerClient};
  }
  if (type == "nfs") {
    return {"direct", where + ": O_DIRECT, so that no client writes back a page that it shares with another",
            kAggregatorsPerClient};
  }
  return {"direct", where + ": past the page cache, which is what a durable save waits for"};
}

BounceBuffer choose_bounce_buffer(std::string_view engine, std::string_view file_system, os::HugePages huge_pages) {
  const bool in_memory = os::FileSystemInfo{std::string(file_system)}.lives_in_memory();
  const bool helps =
      io::engine_traits(engine).is_direct && !in_memory && huge_pages.private_memory && !huge_pages.shared_memory;
  return helps ? BounceBuffer::kHugePages : BounceBuffer::kNone;
}

EngineChoice choose_engine(comm::Communicator& communicator, const EngineRequest& request,
                           const std::filesystem::path& path) {
  StorageFacts facts;
  const auto node = communicator.node();
  facts.nodes = communicator.sum(node->rank() == 0 ? 1 : 0);
  comm::agree_on_root(communicator, "choose an engine", 0,
                      [&] { facts.file_system = os::file_system_of(os::nearest_existing(path)).type; });
  communicator.share(facts.file_system, 0);
  EngineChoice choice;
  comm::MpiIoImplementation implementation;
  comm::agree(communicator, "choose an engine", [&] {
    choice = choose_by_facts(facts);
    if (request.engine != "auto") {
      choice.name = request.engine;
      choice.reason = "asked for";
    } else if (io::engine_traits(choice.name).uses_mpi_io) {
      comm::prefer_romio();
      implementation = comm::mpi_io_implementation();
    }
  });
  if (communicator.max(implementation.loses_write_errors ? 1 : 0) != 0) {
    communicator.share(implementation.io_component, 0);
    comm::agree(communicator, "choose an engine", [&] {
      facts.unsafe_mpi_io_component =
          implementation.io_component.empty() ? "not the same on all ranks" : implementation.io_component;
      choice = choose_by_facts(facts);
    });
  }
  os::HugePages huge_pages;
  comm::agree(communicator, "choose an engine", [&] {
    huge_pages = os::huge_pages();
    huge_pages.shared_memory = huge_pages.shared_memory || os::can_make_pages_huge();
  });
  const BounceBuffer here = choose_bounce_buffer(choice.name, facts.file_system, huge_pages);
  choice.bounce_buffer = communicator.min(here == BounceBuffer::kHugePages ? 1 : 0) == 1 ? here : BounceBuffer::kNone;
  choice.ranks_per_node = communicator.max(static_cast<std::uint64_t>(node->size()));
  if (request.aggregators_per_node != 0) choice.aggregators_per_node = request.aggregators_per_node;
  // All ranks with long runs bypass the windows, by plain writes: not with MPI-IO, nor with a limit on aggregators.
  choice.traits = io::engine_traits(choice.name);
  choice.bypass = choice.one_writer_per_file && !choice.traits.uses_mpi_io && choice.aggregators_per_node == 0;
  choice.direct_bypass =
      choice.traits.is_direct && !choice.one_writer_per_file && facts.nodes == 1 && choice.aggregators_per_node == 0;
  return choice;
}

Aggregators choose_aggregators(comm::Communicator& communicator, std::vector<std::uint32_t> group_of_file,
                               const EngineChoice& choice, Access access) {
  plan::Assignment assignment;
  assignment.group_of_file = std::move(group_of_file);
  assignment.one_aggregator_per_file = access == Access::kWrite && choice.one_writer_per_file;
  Aggregators chosen{communicator.size(), {}};
  const auto choose = [&] {
    comm::agree(communicator, "assign the bytes to the ranks",
                [&] { chosen.assignment = std::make_shared<const plan::Assignment>(std::move(assignment)); });
    return chosen;
  };
  if (choice.aggregators_per_node == 0) return choose();
  const auto node = communicator.node();
  const auto place = static_cast<std::uint64_t>(node->rank());
  const auto size = static_cast<std::uint64_t>(node->size());
  const std::uint64_t of_node = std::min(choice.aggregators_per_node, size);
  // Spread over the node: place 0 is chosen, and each place p at which p * of_node / size increases.
  const bool is_aggregator = place == 0 || place * of_node / size != (place - 1) * of_node / size;
  std::vector<int>& ranks = assignment.ranks;
  std::vector<std::uint64_t> bits;
  comm::agree(communicator, "assign the bytes to the ranks", [&] {
    bits.resize(base::ceil_div(static_cast<std::uint64_t>(communicator.size()), 64));
    ranks.reserve(static_cast<std::size_t>(communicator.size()));
  });
  const auto rank = static_cast<std::uint64_t>(communicator.rank());
  if (is_aggregator) bits[rank / 64] |= 1ULL << rank % 64;
  communicator.all_reduce(bits, comm::ReduceOp::kOr);
  for (int r = 0; r < communicator.size(); ++r) {
    const auto bit = static_cast<std::size_t>(r);
    if ((bits[bit / 64] >> bit % 64 & 1) != 0) ranks.push_back(r);
  }
  chosen.count = static_cast<int>(ranks.size());
  return choose();
}

plan::ExtentMap assign_extents(comm::Communicator& communicator, std::vector<std::uint32_t> group_of_file,
                               std::vector<plan::FileRange> ranges, std::uint64_t block_bytes,
                               const EngineChoice& choice, Access access) {
  const Aggregators chosen = choose_aggregators(communicator, std::move(group_of_file), choice, access);
  std::optional<plan::ExtentMap> extents;
  comm::agree(communicator, "assign the bytes to the ranks",
              [&] { extents.emplace(std::move(ranges), chosen.count, block_bytes, chosen.assignment); });
  return std::move(*extents);
}

MemorySplit MemorySplit::fitted_to(plan::ExtentMaps extents) const {
  constexpr std::uint64_t kWindowsOfAShare = 64;
  const std::uint64_t share = extents.total_bytes() / static_cast<std::uint64_t>(extents[0].aggregators());
  const std::uint64_t enough =
      base::round_up(std::max<std::uint64_t>(share / kWindowsOfAShare, 1), extents[0].block_bytes());
  MemorySplit fitted = *this;
  fitted.window_bytes = std::min(window_bytes, enough);
  return fitted;
}

MemorySplit MemorySplit::beside(std::uint64_t other_window_bytes, std::uint64_t block_bytes) const {
  MemorySplit split = *this;
  split.window_bytes =
      std::min(window_bytes, std::max(other_window_bytes / block_bytes, std::uint64_t{1}) * block_bytes);
  split.exchange_bytes /= 8;
  return split;
}

MemorySplit MemorySplit::with_device_copies(std::uint64_t device_share_bytes) const {
  MemorySplit split = *this;
  split.device_bytes = device_share_bytes;
  split.exchange_bytes -= device_share_bytes;
  return split;
}

std::uint64_t device_share(std::uint64_t memory_budget_bytes) {
  return std::clamp<std::uint64_t>(memory_budget_bytes / 16, io::DeviceCopies::kLeastBytes, 8ULL << 20);
}

std::uint64_t smallest_budget(std::uint64_t block_bytes) {
  return base::mul(kWindows + 1, block_bytes, "memory budget");
}

MemorySplit split_budget(std::uint64_t memory_budget_bytes, std::uint64_t block_bytes, const EngineChoice& choice) {
  if (block_bytes == 0) throw Error(ErrorKind::kUsage, "blocks of 0 bytes cannot be; give 1 or more");
  if (memory_budget_bytes / (kWindows + 1) < block_bytes) {
    throw Error(ErrorKind::kUsage,
                fmt::format("a memory budget of {} is too small for blocks of {}: it must hold {} blocks",
                            base::format_size(memory_budget_bytes), base::format_size(block_bytes), kWindows + 1));
  }
  const std::uint64_t part = memory_budget_bytes / (kWindows + 1);
  MemorySplit split;
  split.exchange_bytes = std::clamp<std::uint64_t>(part, 1ULL << 20, 64ULL << 20);
  if (choice.bounce_buffer == BounceBuffer::kHugePages) {
    const std::uint64_t wanted =
        std::clamp(kBounceBytesPerNode / choice.ranks_per_node, kLeastBounceBytes, kMostBounceBytes);
    split.bounce_bytes = std::min((kWindows - 1) * part, wanted) / io::kRequestBytes * io::kRequestBytes;
  }
  const std::uint64_t largest = split.bounce_bytes == 0 ? kLargestWindowBytes : kLargestBouncedWindowBytes;
  split.window_bytes = std::min(part, std::max(largest, block_bytes)) / block_bytes * block_bytes;
  split.most_window_bytes = part / block_bytes * block_bytes;
  return split;
}

}  // namespace cairn::checkpoint
