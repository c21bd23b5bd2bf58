// Boxes to levels: dimensions that are contiguous in the file and in memory alike melt together.
#include "io/run_geometry.hpp"

#include <algorithm>
#include <string>
#include <vector>

#include "cairn/error.hpp"

namespace cairn::io {
namespace {

void require(bool condition, const char* what) {
  if (!condition) throw Error(ErrorKind::kInternal, std::string("transfer of a tensor region: ") + what);
}

bool is_inside(const Box& region, const Box& box) {
  for (std::size_t d = 0; d < region.shape.size(); ++d) {
    if (region.offset[d] < box.offset[d]) return false;
    const std::uint64_t skipped = region.offset[d] - box.offset[d];
    if (skipped > box.shape[d] || region.shape[d] > box.shape[d] - skipped) return false;
  }
  return true;
}

void check_boxes(const plan::RunSpace& space) {
  const std::size_t rank = space.region.shape.size();
  require(rank <= plan::kMaxRecordRank, "more dimensions than a transfer record holds");
  for (const Box* box : {&space.stored_box, &space.memory_box, &space.region}) {
    require(box->offset.size() == rank && box->shape.size() == rank, "boxes of different rank");
  }
  require(is_inside(space.region, space.stored_box), "it is not inside the stored box");
  require(is_inside(space.region, space.memory_box), "it is not inside the memory box");
}

}  // namespace

RunGeometry::RunGeometry(const plan::RunSpace& space) {
  check_boxes(space);
  file_begin_ = file_end_ = space.stored_offset;
  const Box& region = space.region;
  if (std::find(region.shape.begin(), region.shape.end(), 0U) != region.shape.end()) return;

  // Types of whole bytes are measured in bytes, so that sizes up to 2^63 bytes do not wrap; others in bits.
  const unsigned bits = bits_of(space.dtype);
  const std::uint64_t unit = bits % 8 == 0 ? 1 : 8;
  const std::uint64_t element = bits % 8 == 0 ? bits / 8 : bits;

  std::uint64_t file_stride = element;
  std::uint64_t memory_stride = element;
  std::uint64_t file_skip = 0;
  std::uint64_t memory_skip = 0;
  std::uint64_t run = element;
  depth_ = 0;  // while building, levels_ is innermost first
  for (std::size_t d = region.shape.size(); d-- > 0;) {
    const std::uint64_t count = region.shape[d];
    file_skip += (region.offset[d] - space.stored_box.offset[d]) * file_stride;
    memory_skip += (region.offset[d] - space.memory_box.offset[d]) * memory_stride;
    if (count > 1) {
      Level* inner = depth_ > 0 ? &levels_[depth_ - 1] : nullptr;
      if (inner == nullptr && file_stride == run && memory_stride == run) {
        run *= count;
      } else if (inner != nullptr && file_stride == inner->count * inner->file_stride &&
                 memory_stride == inner->count * inner->memory_stride) {
        inner->count *= count;
      } else {
        levels_[depth_++] = {count, file_stride, memory_stride, 0, 0};
      }
    }
    file_stride *= space.stored_box.shape[d];
    memory_stride *= space.memory_box.shape[d];
  }

  bool whole_bytes = file_skip % unit == 0 && memory_skip % unit == 0 && run % unit == 0;
  run_bytes_ = run / unit;
  std::uint64_t block = run_bytes_;
  std::uint64_t span = run_bytes_;
  for (std::size_t l = 0; l < depth_; ++l) {
    Level& level = levels_[l];
    whole_bytes = whole_bytes && level.file_stride % unit == 0 && level.memory_stride % unit == 0;
    level.file_stride /= unit;
    level.memory_stride /= unit;
    level.block_bytes = block;
    level.span_bytes = span;
    block *= level.count;
    span += (level.count - 1) * level.file_stride;
  }
  require(whole_bytes, "it begins or ends inside a byte");
  std::reverse(levels_.begin(), levels_.begin() + static_cast<std::ptrdiff_t>(depth_));
  bytes_ = block;
  file_begin_ = space.stored_offset + file_skip / unit;
  file_end_ = file_begin_ + span;
  memory_begin_ = memory_skip / unit;
}

std::uint64_t RunGeometry::bytes_before(std::uint64_t file_offset) const {
  if (file_offset <= file_begin_ || bytes_ == 0) return 0;
  if (file_offset >= file_end_) return bytes_;
  std::uint64_t rest = file_offset - file_begin_;
  std::uint64_t before = 0;
  for (std::size_t l = 0; l < depth_; ++l) {
    const Level& level = levels_[l];
    const std::uint64_t whole = std::min(rest / level.file_stride, level.count - 1);
    before += whole * level.block_bytes;
    rest -= whole * level.file_stride;
    if (rest >= level.span_bytes) return before + level.block_bytes;
  }
  return before + std::min(rest, run_bytes_);
}

RunCursor::RunCursor(const RunGeometry& geometry, std::uint64_t first, std::uint64_t bytes)
    : geometry_(geometry), file_offset_(geometry.file_begin_), memory_offset_(geometry.memory_begin_), left_(bytes) {
  require(first <= geometry.bytes_ && bytes <= geometry.bytes_ - first, "more bytes asked for than it has");
  if (bytes == 0) return;
  std::uint64_t rest = first;
  for (std::size_t l = 0; l < geometry.depth_; ++l) {
    const RunGeometry::Level& level = geometry.levels_[l];
    index_[l] = rest / level.block_bytes;
    rest %= level.block_bytes;
    file_offset_ += index_[l] * level.file_stride;
    memory_offset_ += index_[l] * level.memory_stride;
  }
  inside_ = rest;
}

RunBatch RunCursor::next() {
  const std::uint64_t run = geometry_.run_bytes_;
  if (inside_ != 0 || left_ < run || geometry_.depth_ == 0) {  // a cut run, or the only one
    const RunBatch cut{file_offset_ + inside_, memory_offset_ + inside_, std::min(run - inside_, left_), 1, 0, 0};
    left_ -= cut.length_bytes;
    inside_ += cut.length_bytes;
    if (inside_ == run) {
      inside_ = 0;
      advance(1);
    }
    return cut;
  }
  const RunGeometry::Level& level = geometry_.levels_[geometry_.depth_ - 1];
  const std::uint64_t count = std::min(level.count - index_[geometry_.depth_ - 1], left_ / run);
  const RunBatch batch{file_offset_, memory_offset_, run, count, level.file_stride, level.memory_stride};
  left_ -= count * run;
  advance(count);
  return batch;
}

void RunCursor::advance(std::uint64_t runs) {
  for (std::size_t l = geometry_.depth_; l-- > 0;) {
    const RunGeometry::Level& level = geometry_.levels_[l];
    index_[l] += runs;
    file_offset_ += runs * level.file_stride;
    memory_offset_ += runs * level.memory_stride;
    if (index_[l] < level.count) return;
    index_[l] = 0;
    file_offset_ -= level.count * level.file_stride;
    memory_offset_ -= level.count * level.memory_stride;
    runs = 1;
  }
}

}  // namespace cairn::io
