// The order of the encoder's operations, with values for which a different order gives a different code.
//
// Found by search and coded by NumPy in the order of Paddle's source, (x - min) / range * codes:
// in each table some rows change when the code multiplies by the reciprocal of the range, by codes / range,
// or by the number of codes first. The random cases of tests/data/paddle-quant contain no such value.
#include "golden_file.hpp"
#include "quant/paddle_kernels.hpp"

namespace cairn::quant::test {
namespace {

struct FirstMoment {
  float m;
  float m_max;
  int code;
};

struct SecondMoment {
  float v;
  float r_min;
  float r_max;
  int code;
};

constexpr FirstMoment kM8[] = {
    {0x1.34f4dep-18F, 0x1.5cc70ep-18F, 113}, {-0x1.4c6f7ep-22F, 0x1.cff2d0p-21F, -45},
    {0x1.c3f14cp-27F, 0x1.66babap-21F, 2},   {-0x1.d504c8p-21F, 0x1.00bf4ep-17F, -15},
    {0x1.93ef54p-22F, 0x1.f47c32p-22F, 103}, {-0x1.d967a6p-21F, 0x1.c0accp-19F, -34},
};
constexpr FirstMoment kM4[] = {
    {-0x1.4299fep-19F, 0x1.f5d318p-19F, -5}, {-0x1.6518b4p-16F, 0x1.f3ef6p-15F, -3},
    {0x1.c06da6p-19F, 0x1.5cc70ep-18F, 5},   {0x1.6ec828p-19F, 0x1.00bf4ep-17F, 3},
    {0x1.3aad7ep-13F, 0x1.52e238p-13F, 6},   {-0x1.7f70d2p-23F, 0x1.9cefa6p-23F, -6},
    {0x1.645916p-14F, 0x1.7fc266p-14F, 6},
};
constexpr SecondMoment kR8[] = {
    {0x1.55e6ep-37F, 0x1.4a0c08p+16F, 0x1.14a08ep+21F, 28},  {0x1.07d6cep-32F, 0x1.519baap+13F, 0x1.b4ba5ep+19F, 16},
    {0x1.ffa2dap-41F, 0x1.673fa6p+19F, 0x1.c26e9p+20F, 70},  {0x1.7655f6p-35F, 0x1.4c591ap+14F, 0x1.e5355cp+21F, 8},
    {0x1.d9dca4p-38F, 0x1.a62b48p+16F, 0x1.d3fa3p+18F, 190}, {0x1.a8f66ep-38F, 0x1.895918p+15F, 0x1.9200fcp+18F, 251},
};
constexpr SecondMoment kR4[] = {
    {0x1.56a664p-38F, 0x1.507b6ap+18F, 0x1.b05634p+21F, 0},  {0x1.9887bp-35F, 0x1.77d026p+16F, 0x1.570fcp+17F, 9},
    {0x1.bbc18p-36F, 0x1.1b804ep+17F, 0x1.4c6542p+19F, 2},   {0x1.d37f42p-32F, 0x1.a97cc2p+12F, 0x1.ddc36cp+15F, 12},
    {0x1.9a4588p-36F, 0x1.e060dap+15F, 0x1.b31afep+17F, 14}, {0x1.0a90eep-32F, 0x1.b289b2p+13F, 0x1.26f8f2p+17F, 5},
    {0x1.29ea2p-40F, 0x1.39840cp+19F, 0x1.394a8p+20F, 8},
};

/// Codes many copies of the value, to cover vector code and the remainder of a row.
template <class Encode>
void check_row(int expected, Encode encode) {
  const std::vector<int> codes = encode();
  ASSERT_EQ(codes.size(), 37u);
  for (const int code : codes) ASSERT_EQ(code, expected);
}

std::vector<int> codes_of(bool four_bits, bool first, const FirstMoment& m, const SecondMoment& r) {
  const std::vector<float> ms(37, m.m), vs(37, r.v), m_max(37, m.m_max), r_min(37, r.r_min), r_max(37, r.r_max);
  const paddle::Row row = {ms.data(), vs.data(), 37};
  const paddle::Scales scales = {m_max.data(), r_min.data(), r_max.data()};
  std::vector<std::int8_t> m_codes(37);
  std::vector<std::uint8_t> r_codes(37);
  if (!four_bits) {
    paddle::encode_row_o1(row, scales, m_codes.data(), r_codes.data());
    return first ? std::vector<int>(m_codes.begin(), m_codes.end()) : std::vector<int>(r_codes.begin(), r_codes.end());
  }
  paddle::encode_row_o2(row, scales, r_codes.data());
  std::vector<int> codes;
  for (const std::uint8_t byte : r_codes) codes.push_back(first ? static_cast<std::int8_t>(byte) >> 4 : byte & 15);
  return codes;
}

TEST(PaddleOrder, OfTheFirstMoment) {
  const SecondMoment any = kR8[0];
  for (const FirstMoment& m : kM8) check_row(m.code, [&] { return codes_of(false, true, m, any); });
  for (const FirstMoment& m : kM4) check_row(m.code, [&] { return codes_of(true, true, m, any); });
}

TEST(PaddleOrder, OfTheSecondMoment) {
  const FirstMoment any = kM8[0];
  for (const SecondMoment& r : kR8) check_row(r.code, [&] { return codes_of(false, false, any, r); });
  for (const SecondMoment& r : kR4) check_row(r.code, [&] { return codes_of(true, false, any, r); });
}

}  // namespace
}  // namespace cairn::quant::test
