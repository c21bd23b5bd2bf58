// Models of codings that were tried. Scales are exact where a coding stores them as F32 or F16; where it is one of the
// forerunners of q8, they have q8's steps.
#include <algorithm>
#include <cmath>

#include "codings.hpp"

namespace cairn::quant_table {
namespace {

/// A joint coding of u = m / sqrt(v) and log2(v) in blocks, like q8's.
struct Joint {
  std::size_t block = 128;
  double codes = 0;      ///< of a pair
  double pair_bits = 0;  ///< stored for a pair, without scales
  double u_spread = 2;   ///< levels lie as q8's spread_u with 2, spread_v with 3; 0: evenly
  double v_spread = 3;
  double u_levels = 0;  ///< 0: from the range of v, as q8's; otherwise always so many
};

double spread(double place, double p) { return p == 0 ? place : place * std::sqrt((p - 1) / (p - place * place)); }
double squeeze(double value, double p) { return p == 0 ? value : value * std::sqrt(p / (p - 1 + value * value)); }

double stepped_up(double value, double steps) {
  const double octave = std::exp2(std::floor(std::log2(value)));
  return std::ceil(value / octave * steps) / steps * octave;
}

void code_block(const Joint& joint, const float* m, const float* v, std::size_t count, Decoded& out) {
  double low = 1e9;
  double high = -1e9;
  double largest = 0x1p-24;
  bool has_zeros = false;
  for (std::size_t i = 0; i < count; ++i) {
    const double root = v[i] > 0 ? std::sqrt(static_cast<double>(v[i])) : 0x1p-27;
    largest = std::max(largest, std::abs(m[i] / root));
    has_zeros |= v[i] == 0;
    if (v[i] == 0) continue;
    low = std::min(low, std::log2(static_cast<double>(v[i])));
    high = std::max(high, std::log2(static_cast<double>(v[i])));
  }
  low = std::floor(low * 8) / 8;
  const double range = stepped_up(std::max(high - low, 1.125) / 1.125, 64) * 1.125;
  const double scale = stepped_up(largest, 32);
  double u_levels = joint.u_levels;
  if (u_levels == 0) u_levels = std::floor(joint.codes / std::floor(std::sqrt(joint.codes * 0.054 * range)));
  if (std::fmod(u_levels, 2) == 0) u_levels -= 1;
  const double steps = std::floor(joint.codes / u_levels) - 1 - (has_zeros ? 1 : 0);
  const double half = (u_levels - 1) / 2;
  for (std::size_t i = 0; i < count; ++i) {
    double decoded_v = 0;
    if (v[i] > 0) {
      const double y = std::clamp(2 * (std::log2(static_cast<double>(v[i])) - low) / range - 1, -1.0, 1.0);
      const double level = std::round((squeeze(y, joint.v_spread) + 1) / 2 * steps);
      decoded_v = std::exp2(low + (spread(2 * level / steps - 1, joint.v_spread) + 1) / 2 * range);
    }
    const double root = v[i] > 0 ? std::sqrt(static_cast<double>(v[i])) : 0x1p-27;
    const double level = std::round(squeeze(std::clamp(m[i] / root / scale, -1.0, 1.0), joint.u_spread) * half);
    const double u = spread(level / half, joint.u_spread) * scale;
    out.v.push_back(static_cast<float>(decoded_v));
    out.m.push_back(static_cast<float>(u * (v[i] > 0 ? std::sqrt(decoded_v) : 0x1p-27)));
  }
}

Coding joint(std::string name, unsigned bits, const Joint& joint) {
  return {std::move(name), bits, false, [joint](const Tensor& tensor) -> std::optional<Decoded> {
            Decoded out;
            for (std::size_t at = 0; at < tensor.m.size(); at += joint.block) {
              const std::size_t count = std::min(joint.block, tensor.m.size() - at);
              code_block(joint, tensor.m.data() + at, tensor.v.data() + at, count, out);
              out.size_bytes += (joint.pair_bits * static_cast<double>(joint.block) + 32) / 8;
            }
            return out;
          }};
}

/// u in `levels` even steps between -1 and 1 times the largest of 32; log v in even steps between the lowest and
/// highest of 64; each scale in 2 bytes.
Coding separate(std::string name, unsigned bits) {
  return {std::move(name), bits, false, [bits](const Tensor& tensor) -> std::optional<Decoded> {
            const std::size_t size = tensor.m.size();
            const double half = (1 << (bits - 1)) - 1;
            const double v_steps = (1 << bits) - 2;  // code 0 is v = 0
            Decoded out = {std::vector<float>(size), std::vector<float>(size), 0};
            for (std::size_t at = 0; at < size; at += 64) {
              double low = 1e9;
              double high = -1e9;
              const std::size_t end = std::min(at + 64, size);
              const auto log_of = [&](std::size_t i) { return std::log2(static_cast<double>(tensor.v[i])); };
              for (std::size_t i = at; i < end; ++i) {
                if (tensor.v[i] == 0) continue;
                low = std::min(low, log_of(i));
                high = std::max(high, log_of(i));
              }
              const double step = std::max(high - low, 1e-9) / v_steps;
              for (std::size_t i = at; i < end; ++i) {
                if (tensor.v[i] == 0) continue;
                out.v[i] = static_cast<float>(std::exp2(low + std::round((log_of(i) - low) / step) * step));
              }
            }
            for (std::size_t at = 0; at < size; at += 32) {
              const std::size_t end = std::min(at + 32, size);
              double largest = 1e-30;
              const auto u_of = [&](std::size_t i) {
                return tensor.v[i] == 0 ? 0 : tensor.m[i] / std::sqrt(static_cast<double>(tensor.v[i]));
              };
              for (std::size_t i = at; i < end; ++i) largest = std::max(largest, std::abs(u_of(i)));
              for (std::size_t i = at; i < end; ++i) {
                const double u = std::round(u_of(i) / largest * half) / half * largest;
                out.m[i] = static_cast<float>(u * std::sqrt(static_cast<double>(out.v[i])));
              }
            }
            out.size_bytes = static_cast<double>(size) * (2.0 * bits / 8 + 2.0 / 32 + 4.0 / 64);
            return out;
          }};
}

/// The dynamic map of 8-bit optimizers (Dettmers et al., arXiv 2110.02861): decades, each cut evenly into twice as many
/// steps as the one below it.
std::vector<double> dynamic_map(bool is_signed, int exponents) {
  std::vector<double> map = {0, 1};
  for (int i = 0; i < exponents; ++i) {
    const int steps = 1 << (is_signed ? i : i + 1);
    const double decade = std::pow(10, i + 1 - exponents);
    for (int s = 0; s < steps; ++s) {
      const double value = decade * (0.1 + 0.9 * (s + 0.5) / steps);
      map.push_back(value);
      if (is_signed) map.push_back(-value);
    }
  }
  std::sort(map.begin(), map.end());
  return map;
}

double nearest(const std::vector<double>& map, double value) {
  const auto above = std::lower_bound(map.begin(), map.end(), value);
  if (above == map.begin()) return map.front();
  if (above == map.end() || value - above[-1] < *above - value) return above[-1];
  return *above;
}

void code_by_map(const std::vector<double>& map, const std::vector<float>& values, std::size_t block,
                 std::vector<float>& out) {
  for (std::size_t at = 0; at < values.size(); at += block) {
    const std::size_t end = std::min(at + block, values.size());
    double largest = 1e-300;
    for (std::size_t i = at; i < end; ++i) largest = std::max(largest, std::abs(static_cast<double>(values[i])));
    for (std::size_t i = at; i < end; ++i) {
      out.push_back(static_cast<float>(nearest(map, values[i] / largest) * largest));
    }
  }
}

std::optional<Decoded> code_dynamic8(const Tensor& tensor) {
  Decoded out;
  code_by_map(dynamic_map(true, 7), tensor.m, 256, out.m);
  code_by_map(dynamic_map(false, 7), tensor.v, 256, out.v);
  out.size_bytes = static_cast<double>(tensor.m.size()) * (2 + 2 * 4.0 / 256);
  return out;
}

/// Li et al., arXiv 2309.01507: m by the dynamic map in blocks of 128, v evenly without 0 below the smaller of its
/// row's and its column's largest.
std::optional<Decoded> code_li4(const Tensor& tensor) {
  if (tensor.shape.size() != 2) return std::nullopt;
  Decoded out;
  code_by_map(dynamic_map(true, 3), tensor.m, 128, out.m);
  const std::size_t columns = tensor.shape[1];
  std::vector<double> row(tensor.shape[0]);
  std::vector<double> column(columns);
  for (std::size_t i = 0; i < tensor.v.size(); ++i) {
    row[i / columns] = std::max(row[i / columns], static_cast<double>(tensor.v[i]));
    column[i % columns] = std::max(column[i % columns], static_cast<double>(tensor.v[i]));
  }
  for (std::size_t i = 0; i < tensor.v.size(); ++i) {
    const double scale = std::min(row[i / columns], column[i % columns]);
    const double code = scale == 0 ? 1 : std::max(std::round(tensor.v[i] / scale * 16), 1.0);
    out.v.push_back(static_cast<float>(code / 16 * scale));
  }
  out.size_bytes =
      static_cast<double>(tensor.m.size()) * (1 + 4.0 / 128) + 4 * static_cast<double>(row.size() + column.size());
  return out;
}

}  // namespace

std::vector<Coding> tried() {
  return {
      {"dynamic map, blocks of 256", 8, false, code_dynamic8},
      separate("u in 32, log v in 64, even", 8),
      joint("joint, blocks of 32", 8, {32, 65536, 16}),
      joint("joint, blocks of 64", 8, {64, 92672, 16.5}),
      joint("joint, 128, even levels", 8, {128, 108544, 16.75, 0, 0}),
      joint("joint, 128, as many for u as for v", 8, {128, 108544, 16.75, 2, 3, 329}),
      {"dynamic map in 128, v by row and column", 4, false, code_li4},
      separate("u in 32, log v in 64, even", 4),
      joint("joint, blocks of 64", 4, {64, 512, 9}),
      joint("joint, 128, even levels", 4, {128, 608, 9.25, 0, 0}),
      joint("joint, 128, 9 bits a pair", 4, {128, 512, 9}),
  };
}

}  // namespace cairn::quant_table
