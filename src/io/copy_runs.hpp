// The innermost loop of the exchange: copies equal pieces from one stride to another.
//
// Runs of 1, 2, 4, 8 or 16 bytes (a column of a tensor) get loops with a constant size, because a memcpy call of
// unknown length costs more than copying such a run. Runs of other lengths get one memcpy each.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace cairn::io {

template <std::size_t kBytes>
void copy_fixed(std::byte* to, std::uint64_t to_stride, const std::byte* from, std::uint64_t from_stride,
                std::uint64_t count) {
  for (std::uint64_t i = 0; i < count; ++i) {
    std::memcpy(to + i * to_stride, from + i * from_stride, kBytes);
  }
}

/// The places of the pieces: the first piece, and the distance between neighbours.
template <class Pointer>
struct Strided {
  Pointer base;
  std::uint64_t stride;
};

/// Copies `count` pieces of `length_bytes`. The two sides must not overlap.
inline void copy_runs(Strided<std::byte*> to, Strided<const std::byte*> from, std::uint64_t length_bytes,
                      std::uint64_t count) {
  switch (length_bytes) {
    case 1: return copy_fixed<1>(to.base, to.stride, from.base, from.stride, count);
    case 2: return copy_fixed<2>(to.base, to.stride, from.base, from.stride, count);
    case 4: return copy_fixed<4>(to.base, to.stride, from.base, from.stride, count);
    case 8: return copy_fixed<8>(to.base, to.stride, from.base, from.stride, count);
    case 16: return copy_fixed<16>(to.base, to.stride, from.base, from.stride, count);
    default: break;
  }
  for (std::uint64_t i = 0; i < count; ++i) {
    std::memcpy(to.base + i * to.stride, from.base + i * from.stride, length_bytes);
  }
}

}  // namespace cairn::io
