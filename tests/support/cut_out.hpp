// Boxes of a tensor, element by element: slow, and without any code of Cairn.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "cairn/box.hpp"

namespace cairn::test {

/// The bytes of boxes of a whole tensor of that shape, end to end.
inline std::vector<std::byte> cut_out(const std::vector<std::byte>& whole, const std::vector<std::uint64_t>& shape,
                                      std::uint64_t element_bytes, const std::vector<Box>& boxes) {
  std::vector<std::byte> out;
  for (const Box& box : boxes) {
    std::uint64_t elements = 1;
    for (const std::uint64_t size : box.shape) elements *= size;
    for (std::uint64_t e = 0; e < elements; ++e) {
      std::uint64_t rest = e;
      std::uint64_t flat = 0;
      std::uint64_t stride = 1;
      for (std::size_t d = shape.size(); d-- > 0;) {
        flat += (box.offset[d] + rest % box.shape[d]) * stride;
        rest /= box.shape[d];
        stride *= shape[d];
      }
      const auto at = whole.begin() + static_cast<std::ptrdiff_t>(flat * element_bytes);
      out.insert(out.end(), at, at + static_cast<std::ptrdiff_t>(element_bytes));
    }
  }
  return out;
}

}  // namespace cairn::test
