// Random blocks for q8 and q4, of every kind that could upset the choice of scales.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "quant/own_block.hpp"
#include "random.hpp"

namespace cairn::quant::own::test {

inline constexpr float kLeast = 0x1p-149F;
inline constexpr float kMost = std::numeric_limits<float>::max();

/// Makes random v and |m| / sqrt(v), each from its logarithm.
struct Maker {
  std::mt19937_64 random = cairn::test::make_random();

  double in(double low, double high) { return std::uniform_real_distribution<double>(low, high)(random); }
  bool once_in(int n) { return random() % static_cast<unsigned>(n) == 0; }

  static float two_to(double log) {
    return std::min(std::max(static_cast<float>(std::exp2(std::min(log, 127.9999999))), kLeast), kMost);
  }

  float m_for(float v, double log_u) {
    const double root = v > 0 ? std::sqrt(static_cast<double>(v)) : 0x1p-27;
    const double m = std::min(std::exp2(log_u) * root, static_cast<double>(kMost));
    return static_cast<float>(once_in(2) ? m : -m);
  }

  Values block(const std::function<double()>& log_v, const std::function<double()>& log_u, int zero_once_in) {
    Values values;
    for (std::size_t i = 0; i < kBlockElements; ++i) {
      values.v[i] = zero_once_in != 0 && once_in(zero_once_in) ? 0.0F : two_to(log_v());
      values.m[i] = m_for(values.v[i], log_u());
      if (once_in(50)) values.m[i] = 0;
    }
    return values;
  }
};

inline constexpr int kKinds = 12;
/// A random block; `kind`, below kKinds, is the way in which the block could upset the choice of scales.
inline Values random_block(Maker& make, int kind) {
  const double center = make.in(-148, 127);
  const double width = std::exp2(make.in(-8, 8));
  const double u_center = make.in(-38, 36);
  const auto usual_u = [&] { return make.in(-6, 1); };
  const auto around = [&] { return std::min(std::max(center + make.in(-width, width), -149.0), 128.0); };
  switch (kind) {
    case 0: return make.block(around, usual_u, 0);
    case 1:
      return make.block(
          around, [&] { return u_center + make.in(-3, 3); }, 0);
    case 2: return make.block([&] { return center; }, [&] { return 0.5; }, 0);                         // all the same
    case 3: return make.block([&] { return make.in(-149, 128); }, usual_u, 0);                         // all of F32
    case 4: return make.block([&] { return make.in(-149, -120); }, usual_u, make.once_in(2) ? 3 : 0);  // denormals
    case 5: return make.block([&] { return make.in(124, 128); }, [&] { return make.in(-6, -1); }, 0);
    case 6: return make.block(around, usual_u, 2);
    case 7: return make.block(around, usual_u, 100);
    case 8: return make.block(around, usual_u, 1);  // v is zero everywhere
    case 9: return make.block([&] { return make.once_in(2) ? center : make.in(-149, 128); }, usual_u, 5);
    case 10: return make.block([&] { return -126 + width * make.in(-0.1, 0.1); }, usual_u, 0);
    default: {  // single values of v and m, apart, among zeros
      Values values{};
      values.v[make.random() % kBlockElements & ~1U] = Maker::two_to(center);
      values.m[make.random() % kBlockElements | 1U] = make.m_for(0, u_center);
      return values;
    }
  }
}

}  // namespace cairn::quant::own::test
