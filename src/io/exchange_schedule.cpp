// Transfers and windows to items.
#include "io/exchange_schedule.hpp"

#include <algorithm>
#include <numeric>

#include "base/checked.hpp"
#include "cairn/error.hpp"
#include "plan/transfers.hpp"

namespace cairn::io {

WindowIndex::WindowIndex(std::span<const plan::Extent> extents, std::uint64_t window_bytes, std::uint64_t grain_bytes) {
  plan::for_each_window_part(extents, window_bytes, grain_bytes,
                             [&](std::size_t window, const plan::Extent& part, std::uint64_t offset) {
                               const auto number = base::narrow<std::uint32_t>(window, "window number");
                               parts_.push_back({part.file, number, part.begin, part.end, offset});
                             });
}

std::span<const WindowIndex::Part> WindowIndex::meeting(std::uint32_t file, std::uint64_t begin,
                                                        std::uint64_t end) const {
  const auto first = std::partition_point(parts_.begin(), parts_.end(), [&](const Part& part) {
    return part.file < file || (part.file == file && part.end <= begin);
  });
  const auto last = std::partition_point(first, parts_.end(),
                                         [&](const Part& part) { return part.file == file && part.begin < end; });
  return {first, last};
}

void Schedule::add(const plan::Runs& runs, const WindowIndex& windows) {
  const auto number = base::narrow<std::uint32_t>(runs_.size(), "number of transfers of a rank");
  const std::size_t before = pending_.size();
  for (const WindowIndex::Part& part : windows.meeting(runs.file, runs.file_begin, runs.file_end())) {
    const std::uint64_t first = runs.bytes_before(part.begin);
    const std::uint64_t bytes = runs.bytes_before(part.end) - first;
    if (bytes != 0) pending_.push_back({part.window, {{number, first, bytes}, part.buffer_offset - part.begin}});
  }
  if (pending_.size() == before) {
    throw Error(ErrorKind::kInternal, "transfer of " + plan::to_string(runs) + ": none of them lies in these extents");
  }
  runs_.push_back(runs);
}

void Schedule::finish() {
  // Transfers come in ascending order of step; those of a peer lie together. A stable sort by (round, peer's place, packed)
  // therefore keeps the order of transfers inside a pair.
  std::vector<std::uint32_t> place(runs_.size(), 0);
  for (std::size_t r = 1; r < runs_.size(); ++r) {
    place[r] = place[r - 1] + (peer_of(runs_[r], own_) != peer_of(runs_[r - 1], own_) ? 1 : 0);
  }
  std::stable_sort(pending_.begin(), pending_.end(), [&](const Scheduled& a, const Scheduled& b) {
    if (a.round != b.round) return a.round < b.round;
    if (place[a.item.runs] != place[b.item.runs]) return place[a.item.runs] < place[b.item.runs];
    return is_direct(runs_[a.item.runs], a.item) && !is_direct(runs_[b.item.runs], b.item);
  });
  items_.reserve(pending_.size());
  for (const Scheduled& scheduled : pending_) {
    if (scheduled.round + 1 >= round_begin_.size()) {
      throw Error(ErrorKind::kInternal, "exchange: a window lies behind the last round");
    }
    ++round_begin_[scheduled.round + 1];
    items_.push_back(scheduled.item);
  }
  std::partial_sum(round_begin_.begin(), round_begin_.end(), round_begin_.begin());
  pending_ = {};
}

std::span<const Item> Schedule::items(std::uint64_t round) const {
  if (round + 1 >= round_begin_.size()) return {};
  return std::span(items_).subspan(round_begin_[round], round_begin_[round + 1] - round_begin_[round]);
}

std::uint64_t Schedule::bytes(std::uint64_t round) const {
  std::uint64_t sum = 0;
  for (const Item& item : items(round)) sum += item.bytes;
  return sum;
}

bool Schedule::has_packed_items() const {
  return std::any_of(items_.begin(), items_.end(),
                     [&](const Item& item) { return !is_direct(runs_[item.runs], item); });
}

}  // namespace cairn::io
