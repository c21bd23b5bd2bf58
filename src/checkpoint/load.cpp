#include "checkpoint/load.hpp"

#include <algorithm>

#include "base/checked.hpp"
#include "cairn/error.hpp"
#include "checkpoint/engine_choice.hpp"
#include "checkpoint/progress.hpp"
#include "checkpoint/watched_call.hpp"
#include "checkpoint/window_io.hpp"
#include "comm/agree.hpp"
#include "format/crc32c.hpp"
#include "plan/extents.hpp"
#include "plan/transfer.hpp"
#include "shard/box_math.hpp"

namespace cairn::checkpoint {
namespace {

/// Grid cells of all files, numbered through: which of them somebody wants.
class CellMap {
 public:
  CellMap(std::span<const std::uint64_t> sizes, std::uint64_t grain) : sizes_(sizes), grain_(grain) {
    std::uint64_t cells = 0;
    for (const std::uint64_t size : sizes) {
      first_.push_back(cells);
      cells += base::ceil_div(size, grain);
    }
    first_.push_back(cells);
    words_.assign(base::ceil_div(cells, 64), 0);
  }

  void mark(std::uint32_t file, std::uint64_t begin, std::uint64_t end) {
    if (begin == end) return;
    const std::uint64_t last = first_[file] + (end - 1) / grain_;
    for (std::uint64_t cell = first_[file] + begin / grain_; cell <= last; ++cell)
      words_[cell / 64] |= 1ULL << cell % 64;
  }

  std::span<std::uint64_t> words() { return words_; }

  [[nodiscard]] std::vector<plan::FileRange> ranges() const {
    std::vector<plan::FileRange> ranges;
    for (std::uint32_t file = 0; file < sizes_.size(); ++file) {
      for (std::uint64_t cell = first_[file]; cell < first_[file + 1]; ++cell) {
        if ((words_[cell / 64] >> cell % 64 & 1) == 0) continue;
        const std::uint64_t begin = (cell - first_[file]) * grain_;
        const std::uint64_t end = std::min(begin + grain_, sizes_[file]);
        if (!ranges.empty() && ranges.back().file == file && ranges.back().end == begin) {
          ranges.back().end = end;
        } else {
          ranges.push_back({file, begin, end});
        }
      }
    }
    return ranges;
  }

 private:
  std::span<const std::uint64_t> sizes_;
  std::uint64_t grain_;
  std::vector<std::uint64_t> first_;
  std::vector<std::uint64_t> words_;
};

CellMap wanted_cells(const OpenCheckpoint& checkpoint, std::span<const WantedBox> wanted,
                     std::span<const std::uint64_t> sizes, std::uint64_t grain) {
  CellMap cells(sizes, grain);
  for (const WantedBox& want : wanted) {
    const auto& tensor = checkpoint.stored.tensors[want.tensor];
    for (const auto& stored : tensor.boxes) {
      const auto region = shard::intersect(want.box, stored.box);
      if (!region) continue;
      const plan::ByteRange span = plan::file_span({tensor.dtype, stored.box, stored.offset_bytes, want.box, *region});
      cells.mark(stored.file, span.begin, span.end);
    }
  }
  return cells;
}

/// Compares the blocks of a window with the table. Windows begin and end on block boundaries (or the file's end).
void check_blocks(const OpenCheckpoint& checkpoint, std::span<const format::FileBlocks* const> rows,
                  const plan::Window& window, std::span<const std::byte> buffer) {
  const std::uint64_t block_bytes = checkpoint.blocks->block_bytes;
  for (std::size_t p = 0; p < window.parts.size(); ++p) {
    const plan::Extent& part = window.parts[p];
    std::uint64_t at = window.offsets[p];
    for (std::uint64_t begin = part.begin; begin < part.end;) {
      const std::uint64_t block = begin / block_bytes;
      const std::uint64_t end = std::min((block + 1) * block_bytes, part.end);
      const std::uint32_t found = format::crc32c(buffer.subspan(at, end - begin));
      const format::FileBlocks& row = *rows[part.file];
      if (found != row.crcs.at(block)) {
        const BlockFault fault{
            checkpoint.directory / checkpoint.stored.files[part.file].name, block, {begin, end}, found, row.crcs[block],
            tensors_in(checkpoint.stored, part.file, {begin, end})};
        throw Error(ErrorKind::kIntegrity, message_of(fault));
      }
      at += end - begin;
      begin = end;
    }
  }
}

}  // namespace

/// Windows of this rank's extents that are being read.
struct Loader::ReadJob {
  std::span<const plan::Window> windows;
  std::uint64_t rounds;       ///< of the rank with the most windows
  std::uint64_t total_bytes;  ///< of all ranks
  io::WindowPool& buffers;
  io::Engine& engine;
  comm::Communicator& communicator;

  /// Collective.
  void begin(std::uint64_t round) const {
    if (round >= rounds) return;
    buffers.make_window(communicator, round);
    engine.begin_read(read_ops(buffers.of(windows, round)));
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
  const std::vector<std::uint64_t> sizes = file_sizes(checkpoint_.stored);
  CellMap cells(sizes, grain);
  std::vector<plan::MemoryPart> parts;
  std::vector<std::span<std::byte>> memory;
  MemorySplit budget;
  comm::agree(communicator_, "plan the load", [&] {
    for (const WantedBox& want : wanted) {
      const auto& tensor = checkpoint_.stored.tensors.at(want.tensor);
      check_wanted(want, {tensor.name, tensor.dtype, tensor.shape});
    }
    budget = split_budget(options_.memory_budget_bytes, grain, engine_);
    cells = wanted_cells(checkpoint_, wanted, sizes, grain);
    for (std::uint32_t i = 0; i < wanted.size(); ++i) {
      parts.push_back({wanted[i].tensor, i, wanted[i].box, wanted[i].box});
      memory.push_back(wanted[i].memory);
    }
  });
  communicator_.all_reduce(cells.words(), comm::ReduceOp::kOr);
  const plan::ExtentMap extents = deal_extents(communicator_, plan::section_groups(checkpoint_.stored), cells.ranges(),
                                               grain, engine_, Access::kRead);
  if (extents.total_bytes() == 0) return clock_.stop();
  budget = budget.fitted_to(extents);

  const auto windows = plan::cut_windows(extents.of(communicator_.rank()), budget.window_bytes, grain);
  const std::uint64_t rounds = communicator_.max(windows.size());
  const auto buffers = store_.get(communicator_, largest_buffer(windows), budget.staging_bytes);
  clock_.begin("open");
  io::EngineOptions engine_options;
  engine_options.hints = options_.hints;
  engine_options.staging = buffers->staging();
  const auto engine = io::make_engine(engine_.name, communicator_, std::move(engine_options));
  engine->open_for_read(engine_files(checkpoint_.directory, checkpoint_.stored), extents);
  engine_.hints = engine->hints();
  const ReadJob job{windows, rounds, extents.total_bytes(), *buffers, *engine, communicator_};
  clock_.begin("read");
  for (std::uint64_t round = 0; round < io::WindowPool::kAhead; ++round) {
    job.begin(round);
    buffers->barrier();  // the disk of a node first gets all windows of this round: no rank can go on without the others'
  }

  clock_.begin("plan");  // while the first windows are read
  std::vector<plan::Transfer> transfers;
  comm::agree(communicator_, "plan the load",
              [&] { transfers = plan::transfers_of_memory(communicator_.rank(), parts, checkpoint_.stored, extents); });
  io::Exchange exchange(communicator_, checkpoint_.stored, extents, budget.window_bytes, *buffers, std::move(transfers),
                        {budget.exchange_bytes});
  read_windows(job, exchange, memory);
  clock_.begin("open");
  engine->close();
  clock_.stop();
}

void Loader::read_windows(const ReadJob& job, io::Exchange& exchange, std::span<const std::span<std::byte>> memory) {
  const auto rows = block_rows(checkpoint_);
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
      if (window.window != nullptr && checkpoint_.blocks)
        check_blocks(checkpoint_, rows, *window.window, window.buffer);
    });
    if (checkpoint_.blocks) clock_.add_bytes(bytes);
    clock_.begin("scatter");
    clock_.add_bytes(exchange.scatter(round, memory));
  }
}

}  // namespace cairn::checkpoint
