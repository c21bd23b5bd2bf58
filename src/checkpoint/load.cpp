#include "checkpoint/load.hpp"

#include <algorithm>
#include <optional>

#include "base/checked.hpp"
#include "cairn/error.hpp"
#include "checkpoint/engine_choice.hpp"
#include "checkpoint/progress.hpp"
#include "checkpoint/watched_call.hpp"
#include "checkpoint/window_io.hpp"
#include "comm/agree.hpp"
#include "directory/written_blocks.hpp"
#include "format/blocks.hpp"
#include "format/crc32c.hpp"
#include "io/straight_io.hpp"
#include "os/fault.hpp"
#include "plan/extents.hpp"
#include "plan/transfer.hpp"
#include "shard/box_math.hpp"

namespace cairn::checkpoint {
namespace {

/// Loads of less than a 64th of a checkpoint, of which a conversion makes many, go through windows: what goes straight is
/// found by looking at every block of all files.
constexpr std::size_t kStraightParts = 64;

plan::CellSet wanted_cells(const OpenCheckpoint& checkpoint, std::span<const WantedBox> wanted,
                           const plan::CellGrid& grid) {
  plan::CellSet cells(grid);
  for (const WantedBox& want : wanted) {
    const auto& tensor = checkpoint.stored.tensors[want.tensor];
    for (const auto& stored : tensor.boxes) {
      const auto region = shard::intersect(want.box, stored.box);
      if (!region) continue;
      const plan::ByteRange span = plan::file_span({tensor.dtype, stored.box, stored.offset_bytes, want.box, *region});
      cells.insert({stored.file, span.begin, span.end});
    }
  }
  return cells;
}

/// The checksums that were written, to compare blocks with.
class WrittenBlocks {
 public:
  explicit WrittenBlocks(const OpenCheckpoint& checkpoint) : checkpoint_(checkpoint), rows_(block_rows(checkpoint)) {}

  /// Throws Error(kIntegrity) when another checksum was written for these bytes, which are one block.
  void check(const plan::FileRange& bytes, std::uint32_t found) const {
    const std::uint64_t block = bytes.begin / checkpoint_.blocks->block_bytes;
    const std::uint32_t written = rows_[bytes.file]->crcs.at(block);
    if (found == written) return;
    const plan::ByteRange range{bytes.begin, bytes.end};
    const BlockFault fault{checkpoint_.directory / checkpoint_.stored.files[bytes.file].name,
                           block,
                           range,
                           found,
                           written,
                           tensors_in(checkpoint_.stored, bytes.file, range),
                           true};
    throw Error(ErrorKind::kIntegrity, message_of(fault));
  }

  /// Windows begin and end on block boundaries (or the file's end).
  void check(const plan::Window& window, std::span<const std::byte> buffer) const {
    const std::uint64_t block_bytes = checkpoint_.blocks->block_bytes;
    for (std::size_t p = 0; p < window.parts.size(); ++p) {
      const plan::Extent& part = window.parts[p];
      std::uint64_t at = window.offsets[p];
      for (std::uint64_t begin = part.begin; begin < part.end;) {
        const std::uint64_t end = std::min((begin / block_bytes + 1) * block_bytes, part.end);
        check({part.file, begin, end}, format::crc32c(buffer.subspan(at, end - begin)));
        at += end - begin;
        begin = end;
      }
    }
  }

 private:
  const OpenCheckpoint& checkpoint_;
  std::vector<const format::FileBlocks*> rows_;
};

}  // namespace

/// What is read without a window.
struct Loader::StraightPart {
  const WrittenBlocks& written;
  io::StraightRuns runs;  ///< of this rank
  plan::CellSet cells;    ///< of all ranks
  std::span<const std::span<std::byte>> memory;
};

/// Who reads what.
struct Loader::ReadPlan {
  const plan::ExtentMap& extents;
  const MemorySplit& budget;
  bool is_straight;
};

/// Windows of this rank's extents that are being read.
struct Loader::ReadJob {
  const WrittenBlocks& written;
  std::span<const plan::Window> windows;
  std::uint64_t rounds;       ///< of the rank with the most windows
  std::uint64_t total_bytes;  ///< of all ranks
  io::WindowPool& buffers;
  io::Engine& engine;
  comm::Communicator& communicator;
  std::vector<io::ReadOp>& ops;  ///< with room for a round

  /// Collective.
  void begin(std::uint64_t round) const {
    if (round >= rounds) return;
    buffers.make_window(communicator, round);
    put_read_ops(buffers.of(windows, round), ops);
    engine.begin_read(ops);
  }
};

Loader::Loader(comm::Communicator& communicator, const OpenCheckpoint& checkpoint, ReadOptions options)
    : Loader(communicator, checkpoint, std::move(options), own_store_) {}

Loader::Loader(comm::Communicator& communicator, const OpenCheckpoint& checkpoint, ReadOptions options,
               io::WindowStore& store)
    : communicator_(communicator),
      checkpoint_(checkpoint),
      options_(std::move(options)),
      engine_(choose_engine(communicator, {options_.engine, options_.aggregators_per_node}, checkpoint.directory)),
      store_(store) {}

void Loader::load(std::span<const WantedBox> wanted) {
  const WatchedCall watched(communicator_, clock_);
  clock_.begin("plan");
  const std::uint64_t grain = checkpoint_.blocks ? checkpoint_.blocks->block_bytes : format::kDefaultBlockBytes;
  std::optional<plan::CellGrid> grid;
  std::optional<plan::CellSet> cells;
  std::optional<WrittenBlocks> written;
  std::vector<plan::MemoryPart> parts;
  std::vector<std::span<std::byte>> memory;
  MemorySplit budget;
  comm::agree(communicator_, "plan the load", [&] {
    os::fault_memory("memory.load");
    for (const WantedBox& want : wanted) {
      const auto& tensor = checkpoint_.stored.tensors.at(want.tensor);
      check_wanted(want, {tensor.name, tensor.dtype, tensor.shape});
    }
    budget = split_budget(options_.memory_budget_bytes, grain, engine_);
    grid.emplace(file_sizes(checkpoint_.stored), grain);
    cells.emplace(wanted_cells(checkpoint_, wanted, *grid));
    for (std::uint32_t i = 0; i < wanted.size(); ++i) {
      parts.push_back({wanted[i].tensor, i, wanted[i].box, wanted[i].box});
      memory.push_back(wanted[i].memory);
    }
    written.emplace(checkpoint_);
  });
  communicator_.all_reduce(cells->words(), comm::ReduceOp::kOr);
  if (cells->count() == 0) return clock_.stop();
  std::optional<StraightPart> straight;
  if (engine_.straight && cells->count() >= grid->cells() / kStraightParts) {
    comm::agree(communicator_, "plan the load", [&] {
      const auto regions = plan::regions_of_memory(communicator_.rank(), parts, checkpoint_.stored);
      straight.emplace(
          StraightPart{*written, io::StraightRuns(regions, checkpoint_.stored), plan::CellSet(*grid), memory});
    });
    straight->cells = io::keep_tiled_cells(communicator_, *grid, straight->runs);
    cells->remove(straight->cells);
  }
  std::vector<std::uint32_t> groups;
  std::vector<plan::FileRange> ranges;
  comm::agree(communicator_, "plan the load", [&] {
    groups = plan::section_groups(checkpoint_.stored);
    ranges = cells->ranges();
  });
  const plan::ExtentMap extents =
      deal_extents(communicator_, std::move(groups), std::move(ranges), grain, engine_, Access::kRead);
  budget = budget.fitted_to(extents);

  std::vector<plan::Window> windows;
  std::vector<io::EngineFile> files;
  std::vector<io::ReadOp> ops;
  io::EngineOptions engine_options;
  comm::agree(communicator_, "plan the load", [&] {
    windows = plan::cut_windows(extents.of(communicator_.rank()), budget.window_bytes, grain);
    files = engine_files(checkpoint_.directory, checkpoint_.stored);
    ops.reserve(most_parts(windows));
    engine_options.hints = options_.hints;
  });
  const std::uint64_t rounds = communicator_.max(windows.size());
  const auto buffers = store_.get(communicator_, largest_buffer(windows), budget.staging_bytes);
  clock_.begin("open");
  engine_options.staging = buffers->staging();
  std::unique_ptr<io::Engine> engine;
  try {
    engine = io::make_engine_on_all(engine_.name, communicator_, std::move(engine_options));
    engine->open_for_read(std::move(files), extents);
    comm::agree(communicator_, "note hints", [&] { engine_.hints = engine->hints(); });
    if (straight) read_straight(*grid, *straight);
    const ReadJob job{*written, windows, rounds, extents.total_bytes(), *buffers, *engine, communicator_, ops};
    read_extents(job, parts, memory, {extents, budget, straight.has_value()});
    clock_.begin("open");
    engine->close();
  } catch (const comm::AgreedError&) {
    io::close_after_error(engine.get());
    throw;
  }
  clock_.stop();
}

void Loader::read_extents(const ReadJob& job, const std::vector<plan::MemoryPart>& parts,
                          std::span<const std::span<std::byte>> memory, const ReadPlan& plan) {
  clock_.begin("read");
  for (std::uint64_t round = 0; round < std::min<std::uint64_t>(job.rounds, io::WindowPool::kAhead); ++round) {
    job.begin(round);
    // The disk of a node first gets all windows of this round: no rank can go on without the others'.
    job.buffers.barrier();
  }

  clock_.begin("plan");  // while the first windows are read
  std::vector<plan::Transfer> transfers;
  comm::agree(communicator_, "plan the load", [&] {
    const auto outside = plan.is_straight ? plan::OutsideExtents::kStays : plan::OutsideExtents::kIsError;
    transfers = plan::transfers_of_memory(communicator_.rank(), parts, checkpoint_.stored, plan.extents, outside);
  });
  io::Exchange exchange(communicator_, checkpoint_.stored, plan.extents, plan.budget.window_bytes, job.buffers,
                        std::move(transfers), {plan.budget.exchange_bytes});
  read_windows(job, exchange, memory);
}

void Loader::read_straight(const plan::CellGrid& grid, const StraightPart& part) {
  if (part.cells.count() == 0) return;
  std::vector<plan::FileRange> ranges;
  std::vector<io::EngineFile> files;
  std::optional<format::BlockAccumulator> checksums;
  comm::agree(communicator_, "plan the load", [&] {
    ranges = part.cells.ranges();
    files = engine_files(checkpoint_.directory, checkpoint_.stored);
    checksums.emplace(file_sizes(checkpoint_.stored), grid.grain_bytes());
  });
  clock_.begin("read");
  if (checkpoint_.blocks) clock_.begin("verify");
  clock_.begin("read");
  io::read_straight(communicator_, files, part.runs, part.memory,
                    [&](std::uint32_t file, std::uint64_t offset, std::span<const std::byte> data) {
                      clock_.add_bytes(data.size());
                      if (!checkpoint_.blocks) return;
                      clock_.begin("verify");
                      checksums->add(file, offset, data);
                      clock_.add_bytes(data.size());
                      clock_.begin("read");
                    });
  if (!checkpoint_.blocks) return;
  clock_.begin("verify");
  communicator_.all_reduce(checksums->raw_words(), comm::ReduceOp::kXor);
  comm::agree(communicator_, "verify", [&] {
    for (const plan::FileRange& range : ranges) {
      for (std::uint64_t begin = range.begin; begin < range.end; begin += grid.grain_bytes()) {
        const plan::FileRange block{range.file, begin, std::min(begin + grid.grain_bytes(), range.end)};
        part.written.check(block, checksums->crc_of(block.file, begin / grid.grain_bytes()));
      }
    }
  });
}

void Loader::read_windows(const ReadJob& job, io::Exchange& exchange, std::span<const std::span<std::byte>> memory) {
  for (std::uint64_t round = 0; round < job.rounds; ++round) {
    report_progress("reading", job.total_bytes * round / job.rounds, job.total_bytes);
    const io::WindowBuffer window = exchange.window(round);
    const std::uint64_t bytes = window.window != nullptr ? window.window->bytes : 0;
    clock_.begin("read");
    job.begin(round + io::WindowPool::kAhead);  // its buffer was emptied by the round before
    const std::uint64_t ahead = std::min<std::uint64_t>(job.rounds - round - 1, io::WindowPool::kAhead);
    job.engine.wait_rounds(ahead);
    job.buffers.barrier();
    job.engine.finish_rounds(ahead);
    clock_.add_bytes(bytes);
    clock_.begin("verify");
    comm::agree(communicator_, "verify", [&] {
      if (window.window != nullptr && checkpoint_.blocks) job.written.check(*window.window, window.buffer);
    });
    if (checkpoint_.blocks) clock_.add_bytes(bytes);
    clock_.begin("scatter");
    clock_.add_bytes(exchange.scatter(round, memory));
  }
}

}  // namespace cairn::checkpoint
