// Paddle's codecs on a warp of 32 lanes, which measures and codes boxes in tiles of 32 rows by 128 columns.
//
// A lane has four neighbouring columns and walks down the tile's rows: a warp reads 512 bytes of a row at once, and
// each lane keeps its columns' scales in registers. A group of 32 rows (O2) is one tile high, so a tile has one row of
// scales. A 1-d tensor is treated as rows of kFlatColumns elements, to be wide enough, with one scale for all.
//
// Lanes combine only the statistics, by atomic maxima of reduction keys, and the place of the first refused element, by
// an atomic minimum. This code is a template over a policy `Memory`: it runs on a GPU (tile_kernels.cu), and in a unit
// test that compares it with the processor's codec. A policy has:
//
//   load_quad                         loads four floats
//   store_bytes                       stores four bytes
//   raise(at, key), lower(at, value)  atomic maximum and minimum
//
// Only sources of this layer may include this header.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "base/host_device.hpp"
#include "quant/paddle_math.hpp"

namespace cairn::quant::paddle {

inline constexpr std::uint64_t kTileRows = 32;
inline constexpr std::uint64_t kTileColumns = 128;
inline constexpr std::uint64_t kFlatColumns = 1024;
inline constexpr int kRowsAtOnce = 4;  ///< rows that a lane loads at the same time

/// A box as tiles.
struct Tiles {
  std::uint64_t elements = 0;
  std::uint64_t columns = 0;
  std::uint64_t lead = 0;        ///< number of the first group's rows above the box (O2)
  std::uint64_t scale_row = 0;   ///< scales from one row of tiles to the next: 0 or `columns`
  std::uint64_t scale_step = 1;  ///< scales from one column to the next: 0 or 1
  // Derived by with_counts():
  std::uint64_t rows = 0;
  std::uint64_t across = 0;  ///< number of tiles in a row of tiles
  std::uint64_t count = 0;   ///< number of tiles
};

inline Tiles with_counts(Tiles tiles) {
  tiles.rows = (tiles.elements + tiles.columns - 1) / tiles.columns;
  tiles.across = (tiles.columns + kTileColumns - 1) / kTileColumns;
  tiles.count = (tiles.rows + tiles.lead + kTileRows - 1) / kTileRows * tiles.across;
  return tiles;
}

struct MeasureJob {
  Tiles tiles;
  const float* m = nullptr;
  const float* v = nullptr;
  std::uint32_t* keys[3] = {};       ///< keys of the largest |m|, smallest r and largest r; at first kNoKey
  std::uint64_t* refused = nullptr;  ///< lowered to the number of the first element with a non-finite value or v < 0
};

/// `second` is null in O2.
struct EncodeJob {
  Tiles tiles;
  const float* m = nullptr;
  const float* v = nullptr;
  const float* scales[3] = {};
  std::byte* first = nullptr;
  std::byte* second = nullptr;
};

/// The four columns and the rows on which a lane works.
struct LaneTile {
  std::uint64_t column = 0;
  std::uint64_t first_row = 0;
  std::uint64_t end_row = 0;
  std::uint64_t scale = 0;  ///< index of the first column's scale
  bool is_whole = false;    ///< all four columns exist
};

CAIRN_HOST_DEVICE inline LaneTile lane_tile(const Tiles& tiles, std::uint64_t tile, int lane) {
  LaneTile out;
  const std::uint64_t row = tile / tiles.across;
  out.column = (tile - row * tiles.across) * kTileColumns + 4 * static_cast<std::uint64_t>(lane);
  out.first_row = row == 0 ? 0 : row * kTileRows - tiles.lead;
  const std::uint64_t end = (row + 1) * kTileRows - tiles.lead;
  out.end_row = out.column >= tiles.columns ? out.first_row : end < tiles.rows ? end : tiles.rows;
  out.scale = row * tiles.scale_row + out.column * tiles.scale_step;
  out.is_whole = out.column + 4 <= tiles.columns;
  return out;
}

template <class Memory>
class TileCoder {
 public:
  CAIRN_DEVICE TileCoder(const Memory& memory, const Tiles& tiles, std::uint64_t tile, int lane)
      : memory_(memory), tiles_(tiles), tile_(lane_tile(tiles, tile, lane)) {}

  CAIRN_DEVICE void measure(const MeasureJob& job) const {
    float found[3][4];
    CAIRN_UNROLL
    for (int i = 0; i < 4; ++i) {
      found[0][i] = 0.0F;
      found[1][i] = std::numeric_limits<float>::infinity();
      found[2][i] = -std::numeric_limits<float>::infinity();
    }
    for_rows(job.m, job.v, [&](std::uint64_t at, const float* m, const float* v) {
      bool is_usual = true;
      CAIRN_UNROLL
      for (int i = 0; i < 4; ++i) {
        const float size = std::fabs(m[i]);
        const float r = ratio(v[i]);
        found[0][i] = taken_max(found[0][i], size);
        found[1][i] = taken_min(found[1][i], r);
        found[2][i] = taken_max(found[2][i], r);
        is_usual &= size <= std::numeric_limits<float>::max() && v[i] >= 0 && v[i] <= std::numeric_limits<float>::max();
      }
      if (!is_usual) refuse(job, at, m, v);
    });
    if (tile_.first_row == tile_.end_row) return;
    if (tiles_.scale_step == 0) {
      CAIRN_UNROLL
      for (int i = 1; i < 4; ++i) {
        found[0][0] = taken_max(found[0][0], found[0][i]);
        found[1][0] = taken_min(found[1][0], found[1][i]);
        found[2][0] = taken_max(found[2][0], found[2][i]);
      }
    }
    CAIRN_UNROLL
    for (std::uint64_t i = 0; i < 4; ++i) {
      if (i != 0 && (tiles_.scale_step == 0 || tile_.column + i >= tiles_.columns)) continue;
      const std::uint64_t at = tile_.scale + i;
      memory_.raise(job.keys[0] + at, key_of(Reduction::kMax, found[0][i]));
      memory_.raise(job.keys[1] + at, key_of(Reduction::kMin, found[1][i]));
      memory_.raise(job.keys[2] + at, key_of(Reduction::kMax, found[2][i]));
    }
  }

  CAIRN_DEVICE void encode_o1(const EncodeJob& job) const {
    const LaneScales scales = load(job.scales);
    for_rows(job.m, job.v, [&](std::uint64_t at, const float* m, const float* v) {
      std::uint32_t first = 0;
      std::uint32_t second = 0;
      CAIRN_UNROLL
      for (int i = 0; i < 4; ++i) {
        first |= byte(code_of_m_o1(m[i], scales.m_max[i]), i);
        second |= byte(code_of_v(v[i], 255.0F, scales.r_min[i], scales.r_max[i]), i);
      }
      store_bytes(job.first, at, first);
      store_bytes(job.second, at, second);
    });
  }

  CAIRN_DEVICE void encode_o2(const EncodeJob& job) const {
    const LaneScales scales = load(job.scales);
    for_rows(job.m, job.v, [&](std::uint64_t at, const float* m, const float* v) {
      std::uint32_t bytes = 0;
      CAIRN_UNROLL
      for (int i = 0; i < 4; ++i) {
        const int r_code = code_of_v(v[i], 15.0F, scales.r_min[i], scales.r_max[i]);
        bytes |= byte(byte_of(code_of_m_o2(m[i], scales.m_max[i]), r_code), i);
      }
      store_bytes(job.first, at, bytes);
    });
  }

 private:
  struct LaneScales {
    float m_max[4];
    float r_min[4];
    float r_max[4];
  };

  CAIRN_DEVICE static std::uint32_t byte(int code, int i) {
    return (static_cast<std::uint32_t>(code) & 0xffU) << 8 * i;
  }

  CAIRN_DEVICE LaneScales load(const float* const* scales) const {
    LaneScales out;
    CAIRN_UNROLL
    for (std::uint64_t i = 0; i < 4; ++i) {
      const bool is_there = tile_.column + i < tiles_.columns;
      const std::uint64_t at = tile_.scale + (is_there ? i * tiles_.scale_step : 0);
      out.m_max[i] = is_inside() ? scales[0][at] : 1.0F;
      out.r_min[i] = is_inside() ? scales[1][at] : 0.0F;
      out.r_max[i] = is_inside() ? scales[2][at] : 1.0F;
    }
    return out;
  }

  [[nodiscard]] CAIRN_DEVICE bool is_inside() const { return tile_.column < tiles_.columns; }
  /// Whether all four columns exist in the row in which the lane's first element is `at`.
  [[nodiscard]] CAIRN_DEVICE bool is_whole(std::uint64_t at) const {
    return tile_.is_whole && at + 4 <= tiles_.elements;
  }
  [[nodiscard]] CAIRN_DEVICE bool is_there(std::uint64_t at, std::uint64_t i) const {
    return tile_.column + i < tiles_.columns && at + i < tiles_.elements;
  }

  CAIRN_DEVICE void load(const float* from, std::uint64_t at, float* out) const {
    if (is_whole(at)) return memory_.load_quad(from + at, out);
    CAIRN_UNROLL
    for (std::uint64_t i = 0; i < 4; ++i) out[i] = is_there(at, i) ? from[at + i] : from[at];
  }

  /// Calls visit(index of the lane's first element in the row, its four values of m, its four values of v) for each row
  /// in which that element exists.
  template <class Visit>
  CAIRN_DEVICE void for_rows(const float* m, const float* v, Visit visit) const {
    for (std::uint64_t row = tile_.first_row; row < tile_.end_row; row += kRowsAtOnce) {
      float from_m[kRowsAtOnce][4];
      float from_v[kRowsAtOnce][4];
      CAIRN_UNROLL
      for (int i = 0; i < kRowsAtOnce; ++i) {
        const std::uint64_t at = (row + static_cast<std::uint64_t>(i)) * tiles_.columns + tile_.column;
        if (row + static_cast<std::uint64_t>(i) >= tile_.end_row || at >= tiles_.elements) continue;
        load(m, at, from_m[i]);
        load(v, at, from_v[i]);
      }
      CAIRN_UNROLL
      for (int i = 0; i < kRowsAtOnce; ++i) {
        const std::uint64_t at = (row + static_cast<std::uint64_t>(i)) * tiles_.columns + tile_.column;
        if (row + static_cast<std::uint64_t>(i) >= tile_.end_row || at >= tiles_.elements) continue;
        visit(at, from_m[i], from_v[i]);
      }
    }
  }

  CAIRN_DEVICE void store_bytes(std::byte* to, std::uint64_t at, std::uint32_t bytes) const {
    if (is_whole(at)) return memory_.store_bytes(to + at, bytes);
    CAIRN_UNROLL
    for (std::uint64_t i = 0; i < 4; ++i) {
      if (is_there(at, i)) to[at + i] = static_cast<std::byte>(bytes >> 8 * i & 0xff);
    }
  }

  CAIRN_DEVICE void refuse(const MeasureJob& job, std::uint64_t at, const float* m, const float* v) const {
    for (std::uint64_t i = 0; i < 4; ++i) {
      const bool is_usual = std::fabs(m[i]) <= std::numeric_limits<float>::max() && v[i] >= 0 &&
                            v[i] <= std::numeric_limits<float>::max();
      if (!is_usual && is_there(at, i)) memory_.lower(job.refused, at + i);
    }
  }

  const Memory& memory_;
  const Tiles& tiles_;
  LaneTile tile_;
};

}  // namespace cairn::quant::paddle
