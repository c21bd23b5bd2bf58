#include "io/straight_runs.hpp"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/checked.hpp"
#include "base/mix.hpp"
#include "comm/agree.hpp"

namespace cairn::io {

StraightRuns::StraightRuns(std::span<const plan::Runs> regions) {
  for (const plan::Runs& runs : regions) {
    if (runs.bytes == 0) continue;
    if (runs.run_bytes < kShortestBytes && runs.run_bytes != runs.bytes) {
      others_.push_back({runs.file, runs.file_begin, runs.file_end()});
    } else {
      runs_.push_back(runs);
    }
  }
  std::stable_sort(runs_.begin(), runs_.end(), [](const plan::Runs& a, const plan::Runs& b) {
    return std::pair(a.file, a.file_begin) < std::pair(b.file, b.file_begin);
  });
  for (std::uint32_t r = 0; r < base::narrow<std::uint32_t>(runs_.size(), "number of regions"); ++r) {
    slices_.push_back({r, 0, runs_[r].bytes});
  }
}

std::uint64_t StraightRuns::fingerprint_of_tiled(const plan::FileRange& bytes) {
  return base::split_mix64(bytes.end) - base::split_mix64(bytes.begin);
}

std::vector<std::uint64_t> StraightRuns::fingerprints(const plan::CellGrid& grid) const {
  std::vector<std::uint64_t> sums(grid.cells(), 0);
  const auto add = [&](std::uint32_t file, std::uint64_t begin, std::uint64_t end) {
    while (begin < end) {
      const std::size_t cell = grid.cell_of(file, begin);
      const std::uint64_t here = std::min(end, grid.range_of(file, cell).end);
      sums[cell] += fingerprint_of_tiled({file, begin, here});
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
    const std::size_t last = grid.cell_of(other.file, other.end - 1);
    for (std::size_t cell = grid.cell_of(other.file, other.begin); cell <= last; ++cell) ++sums[cell];
  }
  return sums;
}

void StraightRuns::keep(const plan::CellSet& cells) {
  const std::vector<plan::FileRange> ranges = cells.ranges();
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

std::vector<StraightRuns::Walk> StraightRuns::walks() const {
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

plan::Run StraightRuns::Walk::next(std::uint64_t most_bytes) {
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

plan::CellSet keep_tiled_cells(comm::Communicator& communicator, const plan::CellGrid& grid, StraightRuns& runs) {
  std::vector<std::uint64_t> sums;
  std::optional<plan::CellSet> tiled;
  comm::agree(communicator, "find long runs", [&] {
    sums = runs.fingerprints(grid);
    tiled.emplace(grid);
  });
  communicator.all_reduce(sums, comm::ReduceOp::kSum);
  comm::agree(communicator, "find long runs", [&] {
    for (std::uint32_t file = 0; file < grid.files(); ++file) {
      for (std::size_t cell = grid.cell_of(file, 0); cell < grid.end_of(file); ++cell) {
        if (sums[cell] == StraightRuns::fingerprint_of_tiled(grid.range_of(file, cell))) tiled->insert(cell);
      }
    }
    runs.keep(*tiled);
  });
  return std::move(*tiled);
}

}  // namespace cairn::io
