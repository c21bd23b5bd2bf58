// Reads boxes of tensors from an open checkpoint into memory, in any layout, with every block checked.
//
// Balanced (default): each byte is read from storage once by one rank, in whole blocks, checked against the block table,
// and exchanged. Independent: each rank reads what it wants, by the same code on a communicator of itself.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/engine_choice.hpp"
#include "checkpoint/phases.hpp"
#include "codes/wanted_box.hpp"
#include "directory/open.hpp"
#include "io/engine.hpp"
#include "io/exchange.hpp"
#include "io/window_pool.hpp"
#include "plan/cells.hpp"
#include "plan/transfer.hpp"

namespace cairn::checkpoint {

struct ReadOptions {
  std::string engine = "auto";
  std::uint64_t memory_budget_bytes = 256ULL << 20;
  io::Hints hints;
  std::uint64_t aggregators_per_node = 0;  ///< as in Options
  Links links = Links::kInside;            ///< of the checkpoint's directory, when it is opened
};

/// May be called many times with one Loader. `communicator` and `checkpoint` must outlive it.
class Loader {
 public:
  Loader(comm::Communicator& communicator, const OpenCheckpoint& checkpoint, ReadOptions options);
  /// As above, with the windows of `store`, which must outlive it too.
  Loader(comm::Communicator& communicator, const OpenCheckpoint& checkpoint, ReadOptions options,
         io::WindowStore& store);

  /// Collective over the communicator; a rank may want nothing. Boxes of one rank may overlap.
  void load(std::span<const WantedBox> wanted);

  /// "read", "verify", "scatter" of all loads so far.
  PhaseClock& clock() { return clock_; }
  [[nodiscard]] const EngineChoice& engine() const { return engine_; }

 private:
  struct ReadJob;
  struct ReadPlan;
  struct StraightPart;
  /// Collective: reads and checks the cells that long runs of wanted boxes tile.
  void read_straight(const plan::CellGrid& grid, const StraightPart& part);
  /// Collective: reads, checks and scatters what goes through windows.
  void read_extents(const ReadJob& job, const std::vector<plan::MemoryPart>& parts,
                    std::span<const std::span<std::byte>> memory, const ReadPlan& plan);
  /// Collective: waits for each window, checks and scatters it, and begins to read another one into its buffer.
  void read_windows(const ReadJob& job, io::Exchange& exchange, std::span<const std::span<std::byte>> memory);

  comm::Communicator& communicator_;
  const OpenCheckpoint& checkpoint_;
  ReadOptions options_;
  EngineChoice engine_;
  io::WindowStore own_store_;
  io::WindowStore& store_;
  PhaseClock clock_;
};

}  // namespace cairn::checkpoint
