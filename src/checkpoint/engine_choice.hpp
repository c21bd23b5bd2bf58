// The choice of an engine for a call, the same on all ranks, and the split of the call's memory budget.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "comm/communicator.hpp"
#include "io/engine.hpp"
#include "os/huge_pages.hpp"
#include "plan/extents.hpp"

namespace cairn::checkpoint {

/// kHugePages: reads go through buffers in huge pages, between storage and the windows.
enum class BounceBuffer { kNone, kHugePages };

struct EngineChoice {
  std::string name;
  std::string reason;  ///< "asked for", or the facts that determined the choice
  /// Ranks per node that write and read, evenly spread; 0: all. The other ranks exchange their bytes with these.
  std::uint64_t aggregators_per_node = 0;
  bool one_writer_per_file = false;
  bool bypass = false;  ///< long runs bypass the windows (io/bypass_runs.hpp), BypassWay::kCopied
  /// Long runs of a snapshot may bypass the windows, BypassWay::kDirect: no other node writes into the same page.
  bool direct_bypass = false;
  BounceBuffer bounce_buffer = BounceBuffer::kNone;
  std::uint64_t ranks_per_node = 1;  ///< ranks on the fullest node, which share its bytes for bounce buffers
  io::Hints hints = {};              ///< hints in force after files were opened (io::Engine::hints)
  io::EngineTraits traits = {};      ///< traits of the engine; set only by choose_engine()
};

/// Facts about the storage of the files.
struct StorageFacts {
  std::string file_system;  ///< type as given by os::file_system_of()
  std::uint64_t nodes = 1;
  std::string unsafe_mpi_io_component;  ///< the component of MPI-IO that would lose write errors; empty if there is
                                        ///< none
};

/// The rule for engine "auto"; pure. bench/README.md has results of engines that it chose.
EngineChoice choose_by_facts(const StorageFacts& facts);

/// The rule for bounce buffers of loads, on one node; pure. Only `direct` hands windows to a disk, and a disk limits
/// the pieces of memory in a request; windows in huge pages are few pieces. Figures: bench/results/notes-bench.md.
BounceBuffer choose_bounce_buffer(std::string_view engine, std::string_view file_system, os::HugePages huge_pages);

/// The user's choice.
struct EngineRequest {
  std::string engine = "auto";
  std::uint64_t aggregators_per_node = 0;  ///< 0: as the rule decides
};

/// Collective. Rank 0 looks up the file system of `path` (or of its nearest existing parent). An engine other than
/// "auto" is taken as requested; make_engine() throws Error(kUsage) if there is no such engine.
EngineChoice choose_engine(comm::Communicator& communicator, const EngineRequest& request,
                           const std::filesystem::path& path);

enum class Access { kRead, kWrite };

/// The ranks that write or read, and the rule that assigns bytes to them.
struct Aggregators {
  int count = 0;
  std::shared_ptr<const plan::Assignment> assignment;
};

/// Collective. Returns all ranks, or at most choice.aggregators_per_node ranks of each node. Bytes are assigned group
/// by group (plan::Assignment); for writing with choice.one_writer_per_file, whole files are assigned instead.
Aggregators choose_aggregators(comm::Communicator& communicator, std::vector<std::uint32_t> group_of_file,
                               const EngineChoice& choice, Access access);

/// Collective. Assigns the bytes of `ranges` to the aggregators of choose_aggregators().
plan::ExtentMap assign_extents(comm::Communicator& communicator, std::vector<std::uint32_t> group_of_file,
                               std::vector<plan::FileRange> ranges, std::uint64_t block_bytes,
                               const EngineChoice& choice, Access access);

/// The split of a budget of extra memory: windows of whole blocks (io::WindowPool::kBuffers, or a single one with a
/// bounce buffer), the bounce buffer, buffers of the exchange, and slots for device memory.
struct MemorySplit {
  std::uint64_t window_bytes = 0;
  std::uint64_t most_window_bytes = 0;  ///< largest window that the budget allows
  std::uint64_t exchange_bytes = 0;
  std::uint64_t bounce_bytes = 0;
  std::uint64_t device_bytes = 0;  ///< slots for copies between device and host (io/device_copies.hpp)

  /// The split for a rank with boxes in device memory: the slots get a part of the exchange's share.
  [[nodiscard]] MemorySplit with_device_copies(std::uint64_t device_share_bytes) const;

  /// The split with windows of at most a 64th of an aggregator's average share, rounded up to whole blocks: the first
  /// touch of a window's memory costs more than a copy, and should stay a small part of the whole cost.
  [[nodiscard]] MemorySplit fitted_to(plan::ExtentMaps extents) const;

  /// The split for a small plan that uses the windows of a large plan (of `other_window_bytes`) in turn with it:
  /// windows no larger than the large plan's windows or this split's, but of at least one block, and an eighth of this
  /// split's exchange buffers.
  [[nodiscard]] MemorySplit beside(std::uint64_t other_window_bytes, std::uint64_t block_bytes) const;
};
/// A 16th of the budget, but at least 32 KiB and at most 8 MiB.
std::uint64_t device_share(std::uint64_t memory_budget_bytes);
/// One block for each window, and one for the exchange's buffers; a bounce buffer replaces all windows but one.
std::uint64_t smallest_budget(std::uint64_t block_bytes);
/// Throws Error(kUsage) for a budget below smallest_budget(). `choice` is given for loads; saves have no bounce buffer.
MemorySplit split_budget(std::uint64_t memory_budget_bytes, std::uint64_t block_bytes, const EngineChoice& choice = {});

}  // namespace cairn::checkpoint
