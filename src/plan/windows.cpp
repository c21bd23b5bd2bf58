// Windows: a worker's extents in pieces that fit its buffer, cut on block boundaries so that no block is in two
// windows, and placed in the buffer on page boundaries.
#include <fmt/core.h>

#include <algorithm>

#include "base/checked.hpp"
#include "cairn/error.hpp"
#include "plan/extents.hpp"

namespace cairn::plan {
namespace {

constexpr std::uint64_t kPageBytes = 4096;

/// Where to cut an extent that begins at `begin` when `room` bytes are left: a grain multiple, or `begin` when none
/// fits.
std::uint64_t cut_point(std::uint64_t begin, std::uint64_t room, std::uint64_t grain) {
  const std::uint64_t over = (begin % grain + room % grain) % grain;
  return room < over ? begin : begin + (room - over);
}

}  // namespace

void for_each_window_part(std::span<const Extent> extents, std::uint64_t window_bytes, std::uint64_t grain_bytes,
                          const VisitWindowPart& visit) {
  if (grain_bytes == 0 || window_bytes < grain_bytes) {
    throw Error(ErrorKind::kUsage,
                fmt::format("a window of {} bytes cannot hold a checksum block of {} bytes; give it more "
                            "memory or make the block smaller",
                            window_bytes, grain_bytes));
  }
  const std::uint64_t alignment = grain_bytes % kPageBytes == 0 ? kPageBytes : 1;
  std::size_t window = 0;
  std::uint64_t buffer_bytes = 0;  // of the open window, which has none as long as it has no part
  const auto close = [&] {
    if (buffer_bytes != 0) ++window;
    buffer_bytes = 0;
  };
  for (const Extent& extent : extents) {
    std::uint64_t begin = extent.begin;
    while (begin < extent.end) {
      const std::uint64_t at = base::round_up(buffer_bytes, alignment) + begin % alignment;
      const std::uint64_t room = window_bytes - std::min(at, window_bytes);
      std::uint64_t end = extent.end;
      if (end - begin > room) end = cut_point(begin, room, grain_bytes);
      if (end == begin) {
        close();
        continue;
      }
      visit(window, {extent.file, begin, end, extent.rank}, at);
      buffer_bytes = at + end - begin;
      begin = end;
      if (begin < extent.end) close();
    }
  }
}

std::vector<Window> cut_windows(std::span<const Extent> extents, std::uint64_t window_bytes,
                                std::uint64_t grain_bytes) {
  std::vector<Window> windows;
  for_each_window_part(extents, window_bytes, grain_bytes,
                       [&](std::size_t window, const Extent& part, std::uint64_t offset) {
                         if (window == windows.size()) windows.emplace_back();
                         Window& open = windows[window];
                         open.parts.push_back(part);
                         open.offsets.push_back(offset);
                         open.bytes += part.end - part.begin;
                         open.buffer_bytes = offset + part.end - part.begin;
                       });
  return windows;
}

}  // namespace cairn::plan
