// Fills windows of files to be written with tensors that are read from a view of an open checkpoint.
#pragma once

#include <cstdint>
#include <vector>

#include "checkpoint/tensor_reader.hpp"
#include "checkpoint/view.hpp"
#include "checkpoint/window_regions.hpp"
#include "io/exchange.hpp"
#include "plan/file_layout.hpp"

namespace cairn::checkpoint {

/// Regions of cut sub-byte groups go through memory of their own. `view`, `layout` and `reader` must outlive it.
class WindowFiller {
 public:
  /// Every tensor of the layout must be one of the view, which `reader` reads.
  WindowFiller(const plan::FileLayout& layout, const View& view, TensorReader& reader);

  /// Collective: loads what the window holds (a rank may have none). Returns the bytes of tensors in it.
  std::uint64_t fill(const io::WindowBuffer& window);

 private:
  void append(std::vector<WantedBox>& wanted, const WindowRegion& region, std::span<std::byte> memory) const;

  WindowIndex index_;
  std::vector<std::uint32_t> numbers_;  // number in the view of each tensor of the layout
  const View& view_;
  TensorReader& reader_;
};

}  // namespace cairn::checkpoint
