// Decoding of q8 and q4 by a warp: from stored blocks to pairs, eight lanes a block, without reductions.
//
// Policy `Warp` and arrangement as in own_lanes.hpp. Only sources of this layer may include this header.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/host_device.hpp"
#include "quant/own_lanes.hpp"

namespace cairn::quant::own {

template <class Warp, class Packing>
class LaneDecoder {
 public:
  CAIRN_DEVICE LaneDecoder(Warp& warp, const DecodeJob& job) : warp_(warp), job_(job) {}

  /// Decodes blocks first .. first + kBlocksAtOnce - 1, as far as they exist.
  CAIRN_DEVICE void decode(std::uint64_t first) {
    PerLane<bool> is_right;
    warp_.each([&](int lane) { is_right[lane] = decode_lane(first, lane); });
    const std::uint32_t wrong = warp_.ballot([&](int lane) { return !is_right[lane]; });
    if (wrong == 0) return;
    warp_.each([&](int lane) {
      if (in_group(lane) != 0 || group_bits(wrong, lane) == 0) return;
      warp_.lower(job_.refused, first + static_cast<std::uint64_t>(group_of(lane)));
    });
  }

 private:
  template <class T>
  using PerLane = typename Warp::template PerLane<T>;

  struct Stored {
    std::uint32_t header[1 + Packing::kPlanes];  ///< word, planes
    typename Packing::Word words[kQuads];
  };

  /// False when a code is not in use.
  CAIRN_DEVICE bool decode_lane(std::uint64_t first, int lane) const {
    const std::uint64_t block = first + static_cast<std::uint64_t>(group_of(lane));
    const std::uint64_t begin = block * kElements;
    if (begin >= job_.elements) return true;
    const Stored stored = load(job_.in + block * Packing::kBlockBytes, lane);
    const Scales scales = scales_of(stored.header[0]);
    const PairDecoder decoder(grid_of(scales, warp_.template levels<Packing>(scales.range)));
    bool is_right = true;
    std::int32_t largest = 0;
    CAIRN_UNROLL
    for (int q = 0; q < kQuads; ++q) {
      std::uint32_t codes[4];
      is_right &= Packing::split(lane_of(stored, lane, q), codes);
      float m[4];
      float v[4];
      CAIRN_UNROLL
      for (int i = 0; i < 4; ++i) {
        const auto code = static_cast<std::int32_t>(codes[i]);
        largest = larger(largest, code);
        const Pair pair = decoder.pair(code);
        m[i] = pair.m;
        v[i] = pair.v;
      }
      store(begin + place_in_block(lane, 4 * q), m, v);
    }
    return is_right && largest < decoder.codes();
  }

  CAIRN_DEVICE Stored load(const std::byte* block, int lane) const {
    Stored stored;
    CAIRN_UNROLL
    for (std::size_t i = 0; i < 1 + Packing::kPlanes; i += 2) {
      const auto two = warp_.template load<std::uint64_t>(block + 4 * i);
      stored.header[i] = static_cast<std::uint32_t>(two);
      stored.header[i + 1] = static_cast<std::uint32_t>(two >> 32);
    }
    CAIRN_UNROLL
    for (int q = 0; q < kQuads; ++q) {
      const auto at = static_cast<std::size_t>(in_group(lane) + kGroupLanes * q);
      stored.words[q] =
          warp_.template load<typename Packing::Word>(block + Packing::kLanesAt + Packing::kLaneBytes * at);
    }
    return stored;
  }

  CAIRN_DEVICE static typename Packing::Lane lane_of(const Stored& stored, int lane, int q) {
    typename Packing::Lane out;
    out.word = stored.words[q];
    CAIRN_UNROLL
    for (std::size_t p = 0; p < Packing::kPlanes; ++p) {
      out.in_planes |= (stored.header[1 + p] >> (in_group(lane) + kGroupLanes * q) & 1U) << p;
    }
    return out;
  }

  CAIRN_DEVICE void store(std::uint64_t at, const float* m, const float* v) const {
    if (at + 4 <= job_.elements) {
      warp_.store_quad(job_.m + at, m);
      warp_.store_quad(job_.v + at, v);
      return;
    }
    CAIRN_UNROLL
    for (std::uint64_t i = 0; i < 4; ++i) {
      if (at + i >= job_.elements) continue;
      job_.m[at + i] = m[i];
      job_.v[at + i] = v[i];
    }
  }

  Warp& warp_;
  const DecodeJob& job_;
};

}  // namespace cairn::quant::own
