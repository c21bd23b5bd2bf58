// The choice of an engine for a call, the same on all ranks, and the split of its memory.
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
  std::uint64_t ranks_per_node = 1;  ///< ranks on the fullest node; they share the node's bounce buffers
  io::Hints hints = {};              ///< hints in force after files were opened (io::Engine::hints)
  io::EngineTraits traits = {};      ///< traits of the engine; set only by choose_engine()
};

/// Facts about the storage of the files.
struct StorageFacts {
  std::string file_system;  ///< as os::file_system_of names it
  std::uint64_t nodes = 1;
  std::string unsafe_mpi_io_component;  ///< the component of MPI-IO that would lose write errors; empty if there is
                                        ///< none
};

/// The rule for engine "auto"; pure. The figures are in bench/README.md.
EngineChoice choose_by_facts(const StorageFacts& facts);

/// The rule for bounce buffers of loads, on one node; pure. Only `direct` hands windows to a disk, which accepts a
/// limited number of memory pieces per request; windows in huge pages need no bounce buffer. Figures: bench/README.md.
BounceBuffer choose_bounce_buffer(std::string_view engine, std::string_view file_system, os::HugePages huge_pages);

/// The user's choice.
struct EngineRequest {
  std::string engine = "auto";
  std::uint64_t aggregators_per_node = 0;  ///< 0: as the rule decides
};

/// Collective. Decided by rank 0's view of `path` (or its nearest existing parent). A name other than "auto" is used
/// unchanged; make_engine throws Error(kUsage) for an unknown one.
EngineChoice choose_engine(comm::Communicator& communicator, const EngineRequest& request,
                           const std::filesystem::path& path);

enum class Access { kRead, kWrite };

/// The ranks that write or read, and the rule that assigns bytes to them.
struct Aggregators {
  int count = 0;
  std::shared_ptr<const plan::Assignment> assignment;
};

/// Collective. Returns all ranks, or the chosen number on each node. Bytes are assigned section by section, by
/// `group_of_file` (plan::Assignment); for writing, whole files are assigned if the choice requires it.
Aggregators choose_aggregators(comm::Communicator& communicator, std::vector<std::uint32_t> group_of_file,
                               const EngineChoice& choice, Access access);

/// Collective. Assigns the bytes of the selected ranges to the aggregators.
plan::ExtentMap assign_extents(comm::Communicator& communicator, std::vector<std::uint32_t> group_of_file,
                               std::vector<plan::FileRange> ranges, std::uint64_t block_bytes,
                               const EngineChoice& choice, Access access);

/// The split of a budget of extra memory: windows of whole blocks (io::WindowPool::kBuffers, or a single one with a
/// bounce buffer), the bounce buffer, buffers of the exchange, and slots for device memory.
struct MemorySplit {
  std::uint64_t window_bytes = 0;
  std::uint64_t most_window_bytes = 0;  ///< the limit that the budget sets
  std::uint64_t exchange_bytes = 0;
  std::uint64_t bounce_bytes = 0;
  std::uint64_t device_bytes = 0;  ///< slots for copies between device and host (io/device_copies.hpp)

  /// The split for a rank with boxes in device memory: the slots get a part of the exchange's share.
  [[nodiscard]] MemorySplit with_device_copies(std::uint64_t device_share_bytes) const;

  /// The split with windows of at most a 64th of the bytes that an aggregator moves, but at least a block: the first
  /// touch of a window's memory costs more than a copy, and should stay a small part of the whole.
  [[nodiscard]] MemorySplit fitted_to(plan::ExtentMaps extents) const;

  /// The split for a small plan that takes turns with a large plan's windows (of `other_window_bytes`): windows no
  /// larger than the large plan's or this split's, but at least one block, and an eighth of this split's exchange
  /// buffers.
  [[nodiscard]] MemorySplit beside(std::uint64_t other_window_bytes, std::uint64_t block_bytes) const;
};
/// A 16th of the budget, but at least 32 KiB and at most 8 MiB.
std::uint64_t device_share(std::uint64_t memory_budget_bytes);
/// One block for each window, and one for the exchange's buffers; a bounce buffer replaces all windows but one.
std::uint64_t smallest_budget(std::uint64_t block_bytes);
/// Throws Error(kUsage) for a budget below smallest_budget(). `choice`: for loads; saves have no bounce buffer.
MemorySplit split_budget(std::uint64_t memory_budget_bytes, std::uint64_t block_bytes, const EngineChoice& choice = {});

}  // namespace cairn::checkpoint
