// Cuts boxes out of a tensor, row by row, without any code of Cairn.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "cairn/box.hpp"

namespace cairn::test {

/// The bytes of `boxes`, end to end, from a tensor of `shape` with the bytes `whole`.
inline std::vector<std::byte> cut_out(const std::vector<std::byte>& whole, const std::vector<std::uint64_t>& shape,
                                      std::uint64_t element_bytes, const std::vector<Box>& boxes) {
  std::vector<std::byte> out;
  for (const Box& box : boxes) {
    std::uint64_t rows = 1;
    for (std::size_t d = 0; d + 1 < shape.size(); ++d) rows *= box.shape[d];
    const std::uint64_t row_bytes = (shape.empty() ? 1 : box.shape.back()) * element_bytes;
    for (std::uint64_t row = 0; row < rows; ++row) {
      std::uint64_t rest = row;
      std::uint64_t flat = shape.empty() ? 0 : box.offset.back();
      std::uint64_t stride = shape.empty() ? 1 : shape.back();
      for (std::size_t d = shape.size(); d-- > 1;) {
        flat += (box.offset[d - 1] + rest % box.shape[d - 1]) * stride;
        rest /= box.shape[d - 1];
        stride *= shape[d - 1];
      }
      const auto at = whole.begin() + static_cast<std::ptrdiff_t>(flat * element_bytes);
      out.insert(out.end(), at, at + static_cast<std::ptrdiff_t>(row_bytes));
    }
  }
  return out;
}

}  // namespace cairn::test
