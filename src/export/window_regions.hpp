// A window of a file layout as boxes of tensors: what must be loaded to fill it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "checkpoint/load.hpp"
#include "io/exchange.hpp"
#include "plan/file_layout.hpp"

namespace cairn::checkpoint {

/// A byte range of the window that holds a part of one tensor. `boxes` lie end to end, row-major, from `memory` on. A
/// sub-byte dtype may be cut inside an element group by the window; then the boxes cover a little more on both sides,
/// and `skip_bytes` of the loaded bytes come before the window's.
struct WindowRegion {
  std::uint32_t tensor = 0;  ///< index into the layout's stored tensors
  std::vector<Box> boxes;
  std::span<std::byte> memory;
  std::uint64_t skip_bytes = 0;
  std::uint64_t loaded_bytes = 0;  ///< of the boxes; equals memory.size() except for cut sub-byte groups
};

/// Finds regions by file offset. `layout` must outlive it.
class WindowIndex {
 public:
  explicit WindowIndex(const plan::FileLayout& layout);
  [[nodiscard]] std::vector<WindowRegion> regions(const io::WindowBuffer& window) const;

 private:
  struct Place {
    std::uint32_t file = 0;
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
    std::uint32_t tensor = 0;
    std::uint32_t stored = 0;
  };
  void add_regions(const plan::Extent& part, std::span<std::byte> memory, std::vector<WindowRegion>& out) const;
  const plan::FileLayout& layout_;
  std::vector<Place> places_;  // ascending by (file, begin)
};

}  // namespace cairn::checkpoint
