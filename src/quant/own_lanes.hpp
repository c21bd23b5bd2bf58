// Coding of q8 and q4 by a warp of 32 lanes: eight lanes share a block, four blocks at a time.
//
// Lane g of a block's group holds the pairs of the format's lanes g, g + 8, g + 16 and g + 24. So the group reads 128
// consecutive bytes of m and of v at once, and one lane of the warp joins and stores each lane of the format.
//
// The code is written over a policy `Warp`, so that it runs on a GPU (own_kernels.cu) and, with 32 lanes one after the
// other, in a unit test that compares it with the processor's codec. A policy has:
//
//   PerLane<T>                  one T for each lane, by lane number
//   each(f)                     calls f(lane) for all lanes; lanes exchange data only between two calls
//   ballot(f)                   bit `lane` is f(lane)
//   group_max(f), group_min(f)  replace the std::int32_t& f(lane) by the largest (smallest) in the lane's group
//   levels<Packing>(range)      kLevels<Packing::kCodes>[range]
//   load_quad                   loads four floats
//   store<T>                    stores a T at an address that is a multiple of its size
//   lower(at, value)            *at = min(*at, value), atomically
//
// Only sources of this layer may include this header.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/host_device.hpp"
#include "quant/own_pair.hpp"

namespace cairn::quant::own {

inline constexpr int kGroupLanes = 8;
inline constexpr int kBlocksAtOnce = 4;
inline constexpr int kQuads = 4;  ///< quads of elements that a lane holds
inline constexpr int kHeld = 4 * kQuads;
inline constexpr std::uint64_t kElements = 128;  ///< elements of a block

/// Stands for "nothing was refused".
inline constexpr std::uint64_t kNothingRefused = ~std::uint64_t{0};

struct EncodeJob {
  const float* m = nullptr;
  const float* v = nullptr;
  std::uint64_t elements = 0;
  std::byte* out = nullptr;          ///< at a multiple of 8
  std::uint64_t* refused = nullptr;  ///< lowered to the number of the first refused element
};

CAIRN_HOST_DEVICE inline int group_of(int lane) { return lane / kGroupLanes; }
CAIRN_HOST_DEVICE inline int in_group(int lane) { return lane % kGroupLanes; }

/// The eight bits of a ballot that belong to the lane's group.
CAIRN_HOST_DEVICE inline std::uint32_t group_bits(std::uint32_t ballot, int lane) {
  return ballot >> (lane & ~(kGroupLanes - 1)) & 0xffU;
}

/// Sets all bits of each group that has a set bit.
CAIRN_HOST_DEVICE inline std::uint32_t whole_groups(std::uint32_t ballot) {
  std::uint32_t groups = 0;
  for (int lane = 0; lane < 32; lane += kGroupLanes) {
    if (group_bits(ballot, lane) != 0) groups |= 0xffU << lane;
  }
  return groups;
}

CAIRN_HOST_DEVICE inline bool has(std::uint32_t lanes, int lane) { return (lanes >> lane & 1U) != 0; }

/// The position, in the block, of a lane's element `i`.
CAIRN_HOST_DEVICE inline std::uint32_t place_in_block(int lane, int i) {
  return static_cast<std::uint32_t>(4 * (in_group(lane) + kGroupLanes * (i / 4)) + i % 4);
}

template <class Warp, class Packing>
class LaneEncoder {
 public:
  CAIRN_DEVICE LaneEncoder(Warp& warp, const EncodeJob& job) : warp_(warp), job_(job) {}

  /// Encodes blocks first .. first + kBlocksAtOnce - 1, as far as they exist.
  CAIRN_DEVICE void encode(std::uint64_t first) {
    PerLane<Measured> measured;
    {
      PerLane<Values> values;
      load(first, values);
      measure(values, measured);
    }
    PerLane<Coded> coded;
    choose(measured, coded);
    const std::uint32_t refused = warp_.ballot([&](int lane) { return coded[lane].refused; });
    const std::uint32_t extreme =
        warp_.ballot([&](int lane) { return coded[lane].is_extreme && !coded[lane].refused; });
    if (refused != 0) report_apart(warp_, job_, first, refused);
    if (extreme != 0) settle_apart(warp_, job_, first, extreme);
    store(first, coded, ~(refused | extreme));
  }

 private:
  template <class T>
  using PerLane = typename Warp::template PerLane<T>;

  struct Values {
    float m[kHeld];
    float v[kHeld];
  };
  struct Measured {
    float u[kHeld];
    std::int32_t log[kHeld];  ///< kNone if v is 0
    Extremes extremes;        ///< extremes of the block
  };
  struct Coded {
    std::uint32_t codes[kHeld];
    std::uint32_t word = 0;
    bool refused = false;
    bool is_extreme = false;
  };

  CAIRN_DEVICE std::uint64_t begin_of(std::uint64_t first, int lane) const {
    return (first + static_cast<std::uint64_t>(group_of(lane))) * kElements;
  }

  /// Loads blocks; fills a short block with its first pair, and a block that does not exist with zeros.
  CAIRN_DEVICE void load(std::uint64_t first, PerLane<Values>& values) const {
    warp_.each([&](int lane) {
      const std::uint64_t begin = begin_of(first, lane);
      Values& mine = values[lane];
      if (begin + kElements <= job_.elements) {
        const std::uint64_t at = begin + place_in_block(lane, 0);
        CAIRN_UNROLL
        for (int q = 0; q < kQuads; ++q) warp_.load_quad(job_.m + at + 4 * kGroupLanes * q, mine.m + 4 * q);
        CAIRN_UNROLL
        for (int q = 0; q < kQuads; ++q) warp_.load_quad(job_.v + at + 4 * kGroupLanes * q, mine.v + 4 * q);
        return;
      }
      CAIRN_UNROLL
      for (int i = 0; i < kHeld; ++i) {
        const std::uint64_t at = begin + place_in_block(lane, i);
        const std::uint64_t from = at < job_.elements ? at : begin;
        mine.m[i] = begin < job_.elements ? job_.m[from] : 0.0f;
        mine.v[i] = begin < job_.elements ? job_.v[from] : 0.0f;
      }
    });
  }

  CAIRN_DEVICE void measure(PerLane<Values>& values, PerLane<Measured>& measured) const {
    warp_.each([&](int lane) {
      Measured& mine = measured[lane];
      Extremes extremes;
      CAIRN_UNROLL
      for (int i = 0; i < kHeld; ++i) {
        const MeasuredPair pair = measure_pair(values[lane].m[i], values[lane].v[i]);
        take(extremes, pair);
        mine.u[i] = pair.u;
        mine.log[i] = pair.v_bits == 0 ? kNone : pair.log;
      }
      mine.extremes = extremes;
    });
    warp_.group_max([&](int lane) -> std::int32_t& { return measured[lane].extremes.largest_u; });
    warp_.group_max([&](int lane) -> std::int32_t& { return measured[lane].extremes.log_max; });
    warp_.group_min([&](int lane) -> std::int32_t& { return measured[lane].extremes.log_min; });
    const std::uint32_t refused =
        warp_.ballot([&](int lane) { return any_refused(0, measured[lane].extremes.largest_v); });
    const std::uint32_t zeros = warp_.ballot([&](int lane) { return measured[lane].extremes.least_v == 0; });
    warp_.each([&](int lane) {
      measured[lane].extremes.largest_v = group_bits(refused, lane) != 0 ? ~0U : 0U;
      measured[lane].extremes.least_v = group_bits(zeros, lane) != 0 ? 0U : 1U;
    });
  }

  /// All lanes of a group choose the same word.
  CAIRN_DEVICE void choose(PerLane<Measured>& measured, PerLane<Coded>& coded) const {
    warp_.each([&](int lane) {
      const Measured& from = measured[lane];
      Coded& mine = coded[lane];
      mine.refused = any_refused(from.extremes.largest_u, from.extremes.largest_v);
      // A refused block continues as an empty block, because its values would index outside the table of levels.
      const Extremes extremes = mine.refused ? Extremes{} : from.extremes;
      const Scales scales = choose_scales(extremes);
      mine.word = word_of(scales);
      const Grid grid = grid_of(scales, warp_.template levels<Packing>(scales.range));
      mine.is_extreme = extremes.log_min != kNone && own::is_extreme(grid);
      const PairCoder coder(grid, hold(grid, scales), extremes);
      CAIRN_UNROLL
      for (int i = 0; i < kHeld; ++i) mine.codes[i] = coder.code(from.u[i], from.log[i], from.log[i] == kNone);
    });
  }

  /// Stores the blocks of the groups in `lanes`.
  CAIRN_DEVICE void store(std::uint64_t first, PerLane<Coded>& coded, std::uint32_t lanes) const {
    struct Header {
      std::uint32_t planes[Packing::kPlanes] = {};
    };
    PerLane<Header> headers;
    PerLane<std::uint32_t> in_planes;
    warp_.each([&](int lane) { headers[lane] = Header{}; });
    CAIRN_UNROLL
    for (int q = 0; q < kQuads; ++q) {
      warp_.each([&](int lane) {
        const std::uint64_t begin = begin_of(first, lane);
        Coded& mine = coded[lane];
        if (begin + kElements > job_.elements) {
          CAIRN_UNROLL
          for (int i = 4 * q; i < 4 * q + 4; ++i) {
            if (begin + place_in_block(lane, i) >= job_.elements) mine.codes[i] = 0;
          }
        }
        const typename Packing::Lane joined = Packing::join(mine.codes + 4 * q);
        in_planes[lane] = joined.in_planes;
        if (begin >= job_.elements || !has(lanes, lane)) return;
        const std::size_t at = static_cast<std::size_t>(in_group(lane)) + kGroupLanes * static_cast<std::size_t>(q);
        warp_.store(block_at(begin) + Packing::kLanesAt + Packing::kLaneBytes * at, joined.word);
      });
      CAIRN_UNROLL
      for (std::size_t p = 0; p < Packing::kPlanes; ++p) {
        const std::uint32_t bits = warp_.ballot([&](int lane) { return (in_planes[lane] >> p & 1U) != 0; });
        warp_.each([&](int lane) { headers[lane].planes[p] |= group_bits(bits, lane) << (kGroupLanes * q); });
      }
    }
    warp_.each([&](int lane) {
      const std::uint64_t begin = begin_of(first, lane);
      if (begin >= job_.elements || !has(lanes, lane) || in_group(lane) != 0) return;
      std::byte* at = block_at(begin);
      const std::uint32_t* planes = headers[lane].planes;
      static_assert(Packing::kPlanes % 2 == 1, "word and planes are stored two by two");
      warp_.store(at, coded[lane].word | std::uint64_t{planes[0]} << 32);
      CAIRN_UNROLL
      for (std::size_t p = 1; p < Packing::kPlanes; p += 2) {
        warp_.store(at + 4 + 4 * p, planes[p] | std::uint64_t{planes[p + 1]} << 32);
      }
    });
  }

  CAIRN_DEVICE std::byte* block_at(std::uint64_t begin) const {
    return job_.out + begin / kElements * Packing::kBlockBytes;
  }

  // Arguments are passed by value: an address would keep the common path's variables out of registers.
  CAIRN_DEVICE_CALL static void report_apart(Warp warp, EncodeJob job, std::uint64_t first, std::uint32_t lanes) {
    LaneEncoder(warp, job).report(first, lanes);
  }
  CAIRN_DEVICE_CALL static void settle_apart(Warp warp, EncodeJob job, std::uint64_t first, std::uint32_t lanes) {
    LaneEncoder(warp, job).settle(first, lanes);
  }

  /// For each block of the groups in `lanes`, reports the first refused element, or the last if no element is refused.
  CAIRN_DEVICE void report(std::uint64_t first, std::uint32_t lanes) const {
    PerLane<Values> values;
    load(first, values);
    PerLane<std::int32_t> found;
    warp_.each([&](int lane) {
      found[lane] = kElements - 1;
      for (int i = kHeld - 1; i >= 0; --i) {
        const MeasuredPair pair = measure_pair(values[lane].m[i], values[lane].v[i]);
        if (any_refused(magnitude_bits(pair.u), pair.v_bits)) {
          found[lane] = static_cast<std::int32_t>(place_in_block(lane, i));
        }
      }
    });
    warp_.group_min([&](int lane) -> std::int32_t& { return found[lane]; });
    warp_.each([&](int lane) {
      if (!has(lanes, lane) || in_group(lane) != 0) return;
      warp_.lower(job_.refused, begin_of(first, lane) + static_cast<std::uint64_t>(found[lane]));
    });
  }

  /// Codes blocks whose levels can be extreme: makes one try after another until a try settles, as in encode_block().
  CAIRN_DEVICE void settle(std::uint64_t first, std::uint32_t lanes) const {
    PerLane<Values> values;
    PerLane<Measured> measured;
    PerLane<Extremes> given;
    PerLane<Coded> coded;
    PerLane<Coded> tried;
    load(first, values);
    measure(values, measured);
    warp_.each([&](int lane) { given[lane] = measured[lane].extremes; });
    std::uint32_t open = lanes;  // lanes whose blocks have not settled
    std::uint32_t refused = 0;
    for (int attempt = kAsGiven; attempt < kTries && open != 0; ++attempt) {
      load(first, values);
      warp_.each([&](int lane) {
        for (float& v : values[lane].v) v = v == 0.0f ? v : moved(v, log2_of(v), given[lane], attempt);
      });
      measure(values, measured);
      choose(measured, tried);
      warp_.each([&](int lane) {
        if (attempt == kAsGiven || has(open, lane)) coded[lane] = tried[lane];
      });
      refused = warp_.ballot([&](int lane) { return tried[lane].refused; });
      open &= ~settle_levels(coded, open & ~refused);
    }
    if ((open & refused) != 0) report(first, open & refused);
    store(first, coded, lanes);
  }

  /// Decodes and codes blocks until nothing changes. Returns those of `lanes` whose blocks settle.
  CAIRN_DEVICE std::uint32_t settle_levels(PerLane<Coded>& coded, std::uint32_t lanes) const {
    PerLane<Values> values;
    PerLane<Measured> measured;
    PerLane<Coded> again;
    std::uint32_t settled = 0;
    for (int round = 0; round < kSettlingRounds && lanes != 0; ++round) {
      decode(coded, values);
      measure(values, measured);
      choose(measured, again);
      const std::uint32_t changed =
          whole_groups(warp_.ballot([&](int lane) { return differ(coded[lane], again[lane]); }));
      const std::uint32_t failed =
          warp_.ballot([&](int lane) { return again[lane].refused || again[lane].word != coded[lane].word; });
      settled |= lanes & ~failed & ~changed;
      lanes &= changed & ~failed;
      warp_.each([&](int lane) {
        if (has(lanes, lane)) coded[lane] = again[lane];
      });
    }
    return settled;
  }

  CAIRN_DEVICE static bool differ(const Coded& a, const Coded& b) {
    bool differs = a.word != b.word;
    for (int i = 0; i < kHeld; ++i) differs |= a.codes[i] != b.codes[i];
    return differs;
  }

  CAIRN_DEVICE void decode(PerLane<Coded>& coded, PerLane<Values>& values) const {
    warp_.each([&](int lane) {
      const Scales scales = scales_of(coded[lane].word);
      const PairDecoder decoder(grid_of(scales, warp_.template levels<Packing>(scales.range)));
      for (int i = 0; i < kHeld; ++i) {
        const Pair pair = decoder.pair(static_cast<std::int32_t>(coded[lane].codes[i]));
        values[lane].m[i] = pair.m;
        values[lane].v[i] = pair.v;
      }
    });
  }

  Warp& warp_;
  const EncodeJob& job_;
};

}  // namespace cairn::quant::own
