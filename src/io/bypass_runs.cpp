#include "io/bypass_runs.hpp"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "base/checked.hpp"
#include "base/internal_error.hpp"
#include "base/mix.hpp"
#include "cairn/error.hpp"
#include "comm/agree.hpp"
#include "comm/wait.hpp"
#include "os/limits.hpp"

namespace cairn::io {
namespace {

bool is_worth_it(const plan::Runs& runs, BypassWay way) {
  if (way == BypassWay::kCopied) return runs.run_bytes >= BypassRuns::kShortestBytes || runs.run_bytes == runs.bytes;
  return runs.run_bytes >= BypassRuns::kShortestDirectBytes &&
         std::all_of(runs.levels.begin(), runs.levels.begin() + runs.depth, [](const plan::Runs::Level& level) {
           return (level.file_stride - level.memory_stride) % BypassRuns::kPageBytes == 0;
         });
}

/// Largest piece: small enough to stay in the cache between its checksum and its copy.
constexpr std::uint64_t kPieceBytes = 512ULL << 10;
/// Bytes that a rank writes before it lets others into the file. Waking a rank costs as much as copying about 100 KiB.
constexpr std::uint64_t kTurnBytes = 4ULL << 20;

/// The walk's next bytes.
struct Piece : FileSpan<std::byte> {
  bool is_on_device = false;  ///< whether `data` is device memory
};

Piece next_piece(BypassRuns::Walk& walk, std::uint64_t most_bytes, const BypassMemory& memory) {
  const std::uint32_t local = walk.local();
  const plan::MemoryBox none;
  const plan::MemoryBox& box = local < memory.boxes.size() ? memory.boxes[local] : none;
  const bool is_on_device = plan::is_on_device(box);
  if (is_on_device && memory.device == nullptr) {
    throw base::internal_error("bypass run: memory box " + std::to_string(local) +
                               " is in device memory, and there is nothing to copy it with");
  }
  const plan::Run run = walk.next(is_on_device ? std::min(most_bytes, memory.device->slot_bytes()) : most_bytes);
  if (run.memory_offset > box.bytes.size() || run.length_bytes > box.bytes.size() - run.memory_offset) {
    throw base::internal_error("bypass run: bytes " + std::to_string(run.memory_offset) + " to " +
                               std::to_string(run.memory_offset + run.length_bytes) + " of memory box " +
                               std::to_string(local) + ", which has " + std::to_string(box.bytes.size()));
  }
  return {{walk.file(), run.file_offset, box.bytes.subspan(run.memory_offset, run.length_bytes)}, is_on_device};
}

struct Writing {
  BypassRuns::Walk walk;
  os::File file;
};

/// Requires: this rank holds the lock on the file.
void write_turn(Writing& writing, const BypassMemory& memory, const PieceSeen& seen) {
  for (std::uint64_t left = kTurnBytes; left != 0 && !writing.walk.done();) {
    const Piece piece = next_piece(writing.walk, std::min(left, kPieceBytes), memory);
    std::span<const std::byte> data = piece.data;
    if (piece.is_on_device) data = memory.device->fetch({data.data(), data.size()});
    seen(piece.file, piece.offset, data);
    writing.file.write_at(data, piece.offset);
    left -= data.size();
  }
}

}  // namespace

BypassRuns::BypassRuns(std::vector<plan::Runs> regions, BypassWay way) : runs_(std::move(regions)) {
  std::erase_if(runs_, [&](const plan::Runs& runs) {
    const bool is_short = runs.bytes != 0 && !is_worth_it(runs, way);
    if (is_short) others_.push_back({runs.file, runs.file_begin, runs.file_end()});
    return is_short || runs.bytes == 0;
  });
  std::stable_sort(runs_.begin(), runs_.end(), [](const plan::Runs& a, const plan::Runs& b) {
    return std::pair(a.file, a.file_begin) < std::pair(b.file, b.file_begin);
  });
  for (std::uint32_t r = 0; r < base::narrow<std::uint32_t>(runs_.size(), "number of regions"); ++r) {
    slices_.push_back({r, 0, runs_[r].bytes});
  }
}

std::uint64_t BypassRuns::fingerprint_of_tiled(const plan::FileRange& bytes) {
  return base::split_mix64(bytes.end) - base::split_mix64(bytes.begin);
}

std::vector<std::uint64_t> BypassRuns::fingerprints(const plan::BlockGrid& grid) const {
  std::vector<std::uint64_t> sums(grid.blocks(), 0);
  const auto add = [&](std::uint32_t file, std::uint64_t begin, std::uint64_t end) {
    while (begin < end) {
      const std::size_t block = grid.block_of(file, begin);
      const std::uint64_t here = std::min(end, grid.range_of(file, block).end);
      sums[block] += fingerprint_of_tiled({file, begin, here});
      begin = here;
    }
  };
  for (const plan::Slice& slice : slices_) {
    const plan::Runs& runs = runs_[slice.runs];
    for (plan::RunCursor cursor(runs, slice.first, slice.bytes); !cursor.done();) {
      const plan::RunBatch batch = cursor.next();
      for (std::uint64_t i = 0; i < batch.count; ++i) {
        const std::uint64_t begin = batch.file_offset + i * batch.file_stride;
        add(runs.file, begin, begin + batch.length_bytes);
      }
    }
  }
  for (const plan::FileRange& other : others_) {
    const std::size_t last = grid.block_of(other.file, other.end - 1);
    for (std::size_t block = grid.block_of(other.file, other.begin); block <= last; ++block) ++sums[block];
  }
  return sums;
}

std::uint64_t BypassRuns::bytes() const {
  std::uint64_t bytes = 0;
  for (const plan::Slice& slice : slices_) bytes += slice.bytes;
  return bytes;
}

void BypassRuns::keep(const plan::BlockSet& blocks) {
  const std::vector<plan::FileRange> ranges = blocks.ranges();
  std::vector<plan::Slice> kept;
  for (const plan::Slice& slice : std::exchange(slices_, {})) {
    const plan::Runs& runs = runs_[slice.runs];
    const std::uint64_t file_end = runs.file_end();
    auto range = std::partition_point(ranges.begin(), ranges.end(), [&](const plan::FileRange& r) {
      return r.file < runs.file || (r.file == runs.file && r.end <= runs.file_begin);
    });
    for (; range != ranges.end() && range->file == runs.file && range->begin < file_end; ++range) {
      const std::uint64_t first = std::max(slice.first, runs.bytes_before(range->begin));
      const std::uint64_t end = std::min(slice.first + slice.bytes, runs.bytes_before(range->end));
      if (first < end) kept.push_back({slice.runs, first, end - first});
    }
  }
  slices_ = std::move(kept);
}

void BypassRuns::cover_memory(std::vector<plan::MemorySpan>& spans) const {
  for (const plan::Slice& slice : slices_) {
    const plan::Runs& runs = runs_[slice.runs];
    if (runs.local >= spans.size()) spans.resize(runs.local + std::size_t{1});
    spans[runs.local].cover(plan::memory_span(runs, slice));
  }
}

std::vector<std::uint32_t> BypassRuns::files() const {
  std::vector<std::uint32_t> files;
  for (const plan::Slice& slice : slices_) files.push_back(runs_[slice.runs].file);
  std::sort(files.begin(), files.end());
  files.erase(std::unique(files.begin(), files.end()), files.end());
  return files;
}

std::vector<std::optional<BoxInFile>> BypassRuns::boxes_in_files() const {
  std::vector<std::optional<BoxInFile>> boxes;
  for (const plan::Slice& slice : slices_) {
    const plan::Runs& runs = runs_[slice.runs];
    if (runs.local >= boxes.size()) boxes.resize(runs.local + std::size_t{1});
    if (!boxes[runs.local]) boxes[runs.local] = BoxInFile{runs.file, runs.file_begin - runs.memory_begin};
  }
  return boxes;
}

std::vector<BypassRuns::Walk> BypassRuns::walks() const {
  std::vector<Walk> walks;
  for (std::size_t s = 0; s < slices_.size(); ++s) {
    const std::uint32_t file = runs_[slices_[s].runs].file;
    if (walks.empty() || walks.back().file_ != file) {
      walks.emplace_back();
      walks.back().runs_ = this;
      walks.back().file_ = file;
      walks.back().at_ = s;
    }
    walks.back().end_ = s + 1;
  }
  return walks;
}

plan::Run BypassRuns::Walk::next(std::uint64_t most_bytes) {
  const plan::Slice& slice = runs_->slices_[at_];
  plan::RunCursor cursor(runs_->runs_[slice.runs], slice.first + walked_bytes_, slice.bytes - walked_bytes_);
  const plan::RunBatch batch = cursor.next();
  const std::uint64_t bytes = std::min(batch.length_bytes, most_bytes);
  walked_bytes_ += bytes;
  if (walked_bytes_ == slice.bytes) {
    ++at_;
    walked_bytes_ = 0;
  }
  return {batch.file_offset, batch.memory_offset, bytes};
}

plan::BlockSet keep_tiled_blocks(comm::Communicator& communicator, const plan::BlockGrid& grid, BypassRuns& runs) {
  std::vector<std::uint64_t> sums;
  std::optional<plan::BlockSet> tiled;
  comm::agree(communicator, "find long runs", [&] {
    sums = runs.fingerprints(grid);
    tiled.emplace(grid);
  });
  communicator.all_reduce(sums, comm::ReduceOp::kSum);
  comm::agree(communicator, "find long runs", [&] {
    for (std::uint32_t file = 0; file < grid.files(); ++file) {
      for (std::size_t block = grid.block_of(file, 0); block < grid.end_of(file); ++block) {
        if (sums[block] == BypassRuns::fingerprint_of_tiled(grid.range_of(file, block))) tiled->insert(block);
      }
    }
    runs.keep(*tiled);
  });
  return std::move(*tiled);
}

std::vector<WriteOp> BypassRuns::write_ops(std::span<const plan::MemoryBox> memory, std::uint64_t most_bytes) const {
  std::vector<WriteOp> ops;
  for (Walk& walk : walks()) {
    while (!walk.done()) {
      const plan::MemoryBox& box = memory[walk.local()];
      const plan::Run run = walk.next(std::numeric_limits<std::uint64_t>::max());
      if (run.memory_offset > box.bytes.size() || run.length_bytes > box.bytes.size() - run.memory_offset) {
        throw base::internal_error("bypass run outside of its memory box");
      }
      ops.push_back({walk.file(), run.file_offset, box.bytes.subspan(run.memory_offset, run.length_bytes)});
    }
  }
  std::sort(ops.begin(), ops.end(), [](const WriteOp& a, const WriteOp& b) {
    return std::pair(a.file, a.offset) < std::pair(b.file, b.offset);
  });
  std::vector<WriteOp> joined;
  for (const WriteOp& op : ops) {
    WriteOp* const last = joined.empty() ? nullptr : &joined.back();
    if (last != nullptr && last->file == op.file && last->offset + last->data.size() == op.offset &&
        last->data.data() + last->data.size() == op.data.data()) {
      last->data = {last->data.data(), last->data.size() + op.data.size()};
    } else {
      joined.push_back(op);
    }
  }
  std::vector<WriteOp> cut;
  for (WriteOp& op : joined) {
    while (!op.data.empty()) {  // cut where file offsets are multiples of most_bytes, so that pages stay whole
      const std::uint64_t bytes = std::min<std::uint64_t>(most_bytes - op.offset % most_bytes, op.data.size());
      cut.push_back({op.file, op.offset, op.data.first(bytes)});
      op.offset += bytes;
      op.data = op.data.subspan(bytes);
    }
  }
  return cut;
}

void write_bypass(comm::Communicator& communicator, std::span<const EngineFile> files, const BypassRuns& runs,
                  const BypassMemory& memory, const PieceSeen& seen) {
  const auto liveness = communicator.liveness();
  const auto write = [&](std::span<const BypassRuns::Walk> walks) {
    std::vector<Writing> all;
    for (const BypassRuns::Walk& walk : walks) {
      all.push_back({walk, os::File(files[walk.file()].path, os::OpenMode::kWrite)});
    }
    // Ranks begin in different files.
    std::size_t at = all.empty() ? 0 : static_cast<std::size_t>(communicator.rank()) % all.size();
    const auto is_left = [](const Writing& writing) { return !writing.walk.done(); };
    while (std::any_of(all.begin(), all.end(), is_left)) {
      os::FileLock lock;
      for (std::size_t tried = 0; tried < all.size() && !lock; ++tried) {
        if (tried != 0) at = (at + 1) % all.size();
        if (is_left(all[at])) lock = all[at].file.try_lock();
      }
      if (!lock) {
        at = static_cast<std::size_t>(std::find_if(all.begin(), all.end(), is_left) - all.begin());
        // The rank that has the lock may have been stopped, so this wait has the usual limit.
        comm::Wait wait(liveness.get(), "the lock of a file");
        lock = all[at].file.lock([&] {
          wait.pause();
          return true;
        });
      }
      write_turn(all[at], memory, seen);
    }
    for (Writing& writing : all) {
      writing.file.sync();
      writing.file.close();
    }
  };
  comm::agree(communicator, "write data files", [&] {
    const std::vector<BypassRuns::Walk> walks = runs.walks();
    const std::size_t most = os::descriptors_to_use(1);
    for (std::size_t at = 0; at < walks.size(); at += most) {
      write(std::span(walks).subspan(at, std::min(most, walks.size() - at)));
    }
  });
}

BypassFiles::BypassFiles(std::span<const EngineFile> files) : files_(files), most_(os::descriptors_to_use(1)) {}

const os::File& BypassFiles::of(std::uint32_t file) {
  const auto at = open_.find(file);
  if (at != open_.end()) return at->second;
  if (open_.size() >= most_) open_.clear();
  return open_.emplace(file, os::File(files_[file].path, os::OpenMode::kRead)).first->second;
}

void read_bypass(comm::Communicator& communicator, BypassFiles& files, const BypassRuns& runs,
                 const BypassMemory& memory, const PieceSeen& seen) {
  comm::agree(communicator, "read data files", [&] {
    for (BypassRuns::Walk& walk : runs.walks()) {
      const os::File& file = files.of(walk.file());
      while (!walk.done()) {
        const Piece piece = next_piece(walk, kPieceBytes, memory);
        const std::span<std::byte> data = piece.is_on_device ? memory.device->room(piece.data.size()) : piece.data;
        file.read_at(data, piece.offset);
        seen(piece.file, piece.offset, data);
        if (piece.is_on_device) memory.device->put({piece.data.data(), piece.data.size()});
      }
    }
    if (memory.device != nullptr) memory.device->finish();
  });
}

}  // namespace cairn::io
