// Transfers and windows to items.
#include "io/exchange_schedule.hpp"

#include <algorithm>
#include <numeric>

#include "base/checked.hpp"
#include "cairn/error.hpp"

namespace cairn::io {

WindowIndex::WindowIndex(std::span<const plan::Window> windows) {
  for (std::size_t w = 0; w < windows.size(); ++w) {
    for (std::size_t p = 0; p < windows[w].parts.size(); ++p) {
      const plan::Extent& part = windows[w].parts[p];
      parts_.push_back(
          {part.file, base::narrow<std::uint32_t>(w, "window number"), part.begin, part.end, windows[w].offsets[p]});
    }
  }
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

void Schedule::add(const plan::Transfer& transfer, const format::StoredCheckpoint& stored, const WindowIndex& windows,
                   int peer) {
  Route route{RunGeometry(plan::run_space(transfer, stored)), peer, transfer.local};
  if (route.geometry.bytes() == 0) return;
  const RunGeometry& geometry = route.geometry;
  const std::uint32_t file = stored.tensors[transfer.tensor].boxes[transfer.stored].file;
  const auto number = base::narrow<std::uint32_t>(routes_.size(), "number of transfers of a rank");
  for (const WindowIndex::Part& part : windows.meeting(file, geometry.file_begin(), geometry.file_end())) {
    const std::uint64_t first = geometry.bytes_before(part.begin);
    const std::uint64_t bytes = geometry.bytes_before(part.end) - first;
    if (bytes == 0) continue;
    const bool direct = geometry.run_bytes() >= kDirectRunBytes && bytes >= kDirectRunBytes;
    pending_.push_back({part.window, {number, direct, first, bytes, part.buffer_offset - part.begin}});
  }
  routes_.push_back(route);
}

void Schedule::finish() {
  // Routes come in ascending order of step; a peer's routes lie together. A stable sort by (round, peer's place, packed)
  // therefore keeps the order of transfers inside a pair.
  std::vector<std::uint32_t> place(routes_.size(), 0);
  for (std::size_t r = 1; r < routes_.size(); ++r) {
    place[r] = place[r - 1] + (routes_[r].peer != routes_[r - 1].peer ? 1 : 0);
  }
  std::stable_sort(pending_.begin(), pending_.end(), [&](const Scheduled& a, const Scheduled& b) {
    if (a.round != b.round) return a.round < b.round;
    if (place[a.item.route] != place[b.item.route]) return place[a.item.route] < place[b.item.route];
    return a.item.direct && !b.item.direct;
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
  return std::any_of(items_.begin(), items_.end(), [](const Item& item) { return !item.direct; });
}

}  // namespace cairn::io
