#include "io/straight_runs.hpp"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/mix.hpp"
#include "comm/agree.hpp"

namespace cairn::io {

StraightRuns::StraightRuns(std::span<const plan::Transfer> regions, const format::StoredCheckpoint& stored) {
  for (const plan::Transfer& transfer : regions) {
    RunGeometry geometry(plan::run_space(transfer, stored));
    const std::uint64_t run = geometry.run_bytes();
    if (geometry.bytes() == 0) continue;
    const std::uint32_t file = stored.tensors[transfer.tensor].boxes[transfer.stored].file;
    if (run < kShortestBytes && run != geometry.bytes()) {
      others_.push_back({file, geometry.file_begin(), geometry.file_end()});
      continue;
    }
    regions_.push_back({geometry, file, transfer.local});
  }
  std::stable_sort(regions_.begin(), regions_.end(), [](const Region& a, const Region& b) {
    return std::pair(a.file, a.geometry.file_begin()) < std::pair(b.file, b.geometry.file_begin());
  });
  for (std::size_t r = 0; r < regions_.size(); ++r) stretches_.push_back({r, 0, regions_[r].geometry.bytes()});
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
  for (const Stretch& stretch : stretches_) {
    const Region& region = regions_[stretch.region];
    for (RunCursor cursor(region.geometry, stretch.first, stretch.bytes); !cursor.done();) {
      const RunBatch batch = cursor.next();
      for (std::uint64_t i = 0; i < batch.count; ++i) {
        const std::uint64_t begin = batch.file_offset + i * batch.file_stride;
        add(region.file, begin, begin + batch.length_bytes);
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
  std::vector<Stretch> kept;
  for (const Stretch& stretch : std::exchange(stretches_, {})) {
    const Region& region = regions_[stretch.region];
    const RunGeometry& geometry = region.geometry;
    auto range = std::partition_point(ranges.begin(), ranges.end(), [&](const plan::FileRange& r) {
      return r.file < region.file || (r.file == region.file && r.end <= geometry.file_begin());
    });
    for (; range != ranges.end() && range->file == region.file && range->begin < geometry.file_end(); ++range) {
      const std::uint64_t first = std::max(stretch.first, geometry.bytes_before(range->begin));
      const std::uint64_t end = std::min(stretch.first + stretch.bytes, geometry.bytes_before(range->end));
      if (first < end) kept.push_back({stretch.region, first, end - first});
    }
  }
  stretches_ = std::move(kept);
}

std::vector<StraightRuns::Walk> StraightRuns::walks() const {
  std::vector<Walk> walks;
  for (std::size_t s = 0; s < stretches_.size(); ++s) {
    const std::uint32_t file = regions_[stretches_[s].region].file;
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

StraightPiece StraightRuns::Walk::next(std::uint64_t most_bytes) {
  const Stretch& stretch = runs_->stretches_[at_];
  const Region& region = runs_->regions_[stretch.region];
  RunCursor cursor(region.geometry, stretch.first + walked_bytes_, stretch.bytes - walked_bytes_);
  const RunBatch batch = cursor.next();
  const std::uint64_t bytes = std::min(batch.length_bytes, most_bytes);
  walked_bytes_ += bytes;
  if (walked_bytes_ == stretch.bytes) {
    ++at_;
    walked_bytes_ = 0;
  }
  return {region.file, region.local, batch.file_offset, batch.memory_offset, bytes};
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
