// Which engine a call uses, decided alike on all ranks, and how its memory is divided.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "comm/communicator.hpp"
#include "io/engine.hpp"
#include "os/pages.hpp"
#include "plan/extents.hpp"

namespace cairn::checkpoint {

/// Whether reads go through buffers of their own in huge pages, between storage and the windows.
enum class BounceBuffer { kNone, kHugePages };

struct EngineChoice {
  std::string name;
  std::string reason;  ///< "asked for", or the facts that decided
  /// Ranks per node that write and read, evenly spread; 0: all. The others hand their bytes over.
  std::uint64_t aggregators_per_node = 0;
  bool one_writer_per_file = false;
  bool bypass = false;  ///< long runs go without a window (io/bypass_runs.hpp), BypassWay::kCopied
  /// What is copied for it may go without a window, BypassWay::kDirect: no other node writes into the same page.
  bool direct_bypass = false;
  BounceBuffer bounce_buffer = BounceBuffer::kNone;
  std::uint64_t ranks_per_node = 1;  ///< of the fullest node; they share the disk that bounce buffers keep busy
  io::Hints hints = {};              ///< in force, once files were opened (io::Engine::hints)
};

/// Where files will be, or are.
struct StorageFacts {
  std::string file_system;  ///< as os::file_system_of names it
  std::uint64_t nodes = 1;
  std::string unsafe_mpi_io_component;  ///< MPI-IO loses write errors there; empty when it does not
};

/// The rule of "auto"; pure. Figures behind it: bench/README.md.
EngineChoice choose_by_facts(const StorageFacts& facts);

/// The rule of bounce buffers for loads, on one node; pure. Only `direct` hands windows to a disk, which takes so many
/// pieces of memory a request; windows that lie in huge pages themselves need no second place. Figures:
/// bench/README.md.
BounceBuffer choose_bounce_buffer(std::string_view engine, std::string_view file_system, os::HugePages huge_pages);

/// What the user asked for.
struct EngineRequest {
  std::string engine = "auto";
  std::uint64_t aggregators_per_node = 0;  ///< 0: as many as the rule says
};

/// Collective. Decided by rank 0's view of `path` (or of the nearest parent that exists). A name other than "auto" is
/// taken as it is; make_engine throws Error(kUsage) for one that does not exist.
EngineChoice choose_engine(comm::Communicator& communicator, const EngineRequest& request,
                           const std::filesystem::path& path);

enum class Access { kRead, kWrite };

/// The ranks that write or read, and by which rule.
struct Aggregators {
  int count = 0;
  std::shared_ptr<const plan::Assignment> assignment;
};

/// Collective. All ranks, or as many of each node as the choice says; section by section: `group_of_file` says which
/// (plan::Assignment). For writing, whole files where the choice says so.
Aggregators choose_aggregators(comm::Communicator& communicator, std::vector<std::uint32_t> group_of_file,
                               const EngineChoice& choice, Access access);

/// Collective. The bytes of the selected ranges assigned to the aggregators.
plan::ExtentMap assign_extents(comm::Communicator& communicator, std::vector<std::uint32_t> group_of_file,
                               std::vector<plan::FileRange> ranges, std::uint64_t block_bytes,
                               const EngineChoice& choice, Access access);

/// How a budget of extra memory is spent: windows of whole blocks (io::WindowPool::kBuffers, or one with
/// a bounce buffer), the bounce buffer, buffers of the exchange, and slots for device memory.
struct MemorySplit {
  std::uint64_t window_bytes = 0;
  std::uint64_t most_window_bytes = 0;  ///< what the budget would have room for
  std::uint64_t exchange_bytes = 0;
  std::uint64_t bounce_bytes = 0;
  std::uint64_t device_bytes = 0;  ///< slots for copies between device and host (io/device_copies.hpp)

  /// For a rank with boxes in device memory: the slots get their share of the budget, out of that of the exchange.
  [[nodiscard]] MemorySplit with_device_copies(std::uint64_t device_share_bytes) const;

  /// With windows of at most a 64th of what an aggregator moves (but a block): the first touch of a window's memory
  /// costs more than a copy, which should stay small beside the whole.
  [[nodiscard]] MemorySplit fitted_to(plan::ExtentMaps extents) const;

  /// Of a small plan beside a large one, whose windows have `other_window_bytes`: no larger ones (but of a block), which are
  /// then used in turn, and an eighth of the exchange's buffers.
  [[nodiscard]] MemorySplit beside(std::uint64_t other_window_bytes, std::uint64_t block_bytes) const;
};
/// A 16th of the budget, 32 KiB to 8 MiB.
std::uint64_t device_share(std::uint64_t memory_budget_bytes);
/// A block for each window and one for buffers; a bounce buffer takes the place of all windows but one.
std::uint64_t smallest_budget(std::uint64_t block_bytes);
/// Throws Error(kUsage) for a budget below smallest_budget(). Loads give their `choice`; saves have no bounce buffer.
MemorySplit split_budget(std::uint64_t memory_budget_bytes, std::uint64_t block_bytes, const EngineChoice& choice = {});

}  // namespace cairn::checkpoint
