// The codecs q8 and q4 behind the interface: promised errors, cuts, refusals, and bytes that must not drift.
#include "quant/own_codec.hpp"

#include <cmath>
#include <random>

#include "environment.hpp"
#include "golden_file.hpp"
#include "quant/boxes.hpp"

namespace cairn::quant::test {
namespace {

State gaussian_state(std::size_t elements, double sigma) {
  std::mt19937_64 random(elements);
  std::normal_distribution<double> gauss;
  State state(elements);
  for (std::size_t i = 0; i < elements; ++i) {
    const double v = std::exp(sigma * gauss(random));
    state.v[i] = static_cast<float>(v);
    state.m[i] = static_cast<float>(gauss(random) * std::sqrt(v));
  }
  return state;
}

struct Errors {
  double update = 0;
  double root = 0;
};

/// Relative RMS errors of m / (sqrt(v) + 1e-8) and of sqrt(v).
Errors errors_of(const State& state, const State& back) {
  double update = 0;
  double size = 0;
  double root = 0;
  for (std::size_t i = 0; i < state.m.size(); ++i) {
    const double s = std::sqrt(static_cast<double>(state.v[i]));
    const double t = std::sqrt(static_cast<double>(back.v[i]));
    const double u = state.m[i] / (s + 1e-8);
    update += std::pow(back.m[i] / (t + 1e-8) - u, 2);
    size += u * u;
    root += std::pow(t / s - 1, 2);
  }
  return {std::sqrt(update / size), std::sqrt(root / static_cast<double>(state.m.size()))};
}

struct OwnCodec : testing::TestWithParam<const Codec*> {
  const Codec& codec = *GetParam();
  bool is_8 = codec.traits().bits == 8;
};

INSTANTIATE_TEST_SUITE_P(Codecs, OwnCodec, testing::Values(&own_q8(), &own_q4()),
                         [](const auto& test) { return test.param->traits().name; });

TEST_P(OwnCodec, KeepsItsPromiseOnLogNormalMoments) {
  const Source source = {"w", {512, 512}};
  for (const double sigma : {1.0, 2.0, 3.0}) {
    const State state = gaussian_state(512 * 512, sigma);
    const Encoded encoded = encode_whole(codec, source, state.view());
    const Errors errors = errors_of(state, decoded(codec, source, encoded, Division::kTrue));
    const double bytes = static_cast<double>(encoded[0].size()) / (2.0 * 512 * 512);
    EXPECT_LE(bytes, is_8 ? 1.07 : 0.6);
    EXPECT_LE(errors.update, is_8 ? 0.005 : 0.07) << sigma;
    EXPECT_LE(errors.root, is_8 ? 0.006 : 0.08) << sigma;
    EXPECT_GT(errors.update, 0.0005) << "compared nothing?";
  }
}

TEST_P(OwnCodec, AnyRunOfWholeBlocksGivesTheSameBytes) {
  const Source source = {"w", {3, 1000}};
  const State state = gaussian_state(3000, 2);
  const Encoded whole = encode_whole(codec, source, state.view());
  const std::uint64_t block_bytes = codec.parts(source.shape)[0].shape[1];
  ASSERT_EQ(whole[0].size(), 24 * block_bytes);
  const State back = decoded(codec, source, whole, Division::kTrue);
  std::uint64_t compared = 0;
  for (const std::uint64_t blocks : {1U, 5U, 7U, 24U}) {
    for (std::uint64_t begin = 0; begin < 3000; begin += 128 * blocks) {
      const std::uint64_t count = std::min<std::uint64_t>(128 * blocks, 3000 - begin);
      const Box box = {{begin}, {count}};
      const ConstMoments piece = {std::span(state.m).subspan(begin, count), std::span(state.v).subspan(begin, count)};
      const Encoded encoded = encode_box(codec, source, box, piece, {});
      const Box stored = codec.part_box(source.shape, 0, box);
      EXPECT_EQ(stored.offset, (Shape{begin / 128, 0}));
      ASSERT_EQ(encoded[0].size(), stored.shape[0] * block_bytes);
      EXPECT_TRUE(std::equal(encoded[0].begin(), encoded[0].end(),
                             whole[0].begin() + static_cast<std::ptrdiff_t>(begin / 128 * block_bytes)));
      State part(count);
      const std::vector<std::span<const std::byte>> bytes(encoded.begin(), encoded.end());
      codec.decode(source, box, bytes, {}, part.out());
      EXPECT_TRUE(same_floats(part.m, std::span(back.m).subspan(begin, count)));
      EXPECT_TRUE(same_floats(part.v, std::span(back.v).subspan(begin, count)));
      compared += count;
    }
  }
  EXPECT_EQ(compared, 4 * 3000U);
}

TEST_P(OwnCodec, AnyBoxOfWholeBlocksGivesItsBoxOfTheBytes) {
  const Source source = {"w", {2, 5, 384}};
  const State state = gaussian_state(3840, 2);
  const Encoded whole = encode_whole(codec, source, state.view());
  const Shape stored = codec.parts(source.shape)[0].shape;
  ASSERT_EQ(Shape(stored.begin(), stored.end() - 1), (Shape{2, 5, 3}));
  const Box box = {{0, 1, 128}, {2, 3, 256}};
  EXPECT_EQ(codec.part_box(source.shape, 0, box), (Box{{0, 1, 1, 0}, {2, 3, 2, stored.back()}}));
  State cut(2 * 3 * 256);
  base::Bytes expected;
  for (std::size_t row = 0; row < 6; ++row) {
    const std::size_t from = (row / 3 * 5 + row % 3 + 1) * 384 + 128;
    std::copy_n(state.m.begin() + static_cast<std::ptrdiff_t>(from), 256,
                cut.m.begin() + static_cast<std::ptrdiff_t>(row * 256));
    std::copy_n(state.v.begin() + static_cast<std::ptrdiff_t>(from), 256,
                cut.v.begin() + static_cast<std::ptrdiff_t>(row * 256));
    const auto bytes = std::span(whole[0]).subspan(from / 128 * stored.back(), 2 * stored.back());
    expected.insert(expected.end(), bytes.begin(), bytes.end());
  }
  EXPECT_EQ(encode_box(codec, source, box, cut.view(), {})[0], expected);
  cut.m[700] = std::numeric_limits<float>::quiet_NaN();  // row 2 of the box, element 188
  expect_error(ErrorKind::kState, [&] { (void)encode_box(codec, source, box, cut.view(), {}); }, {"at [0, 3, 316]"});
  expect_error(ErrorKind::kInternal,
               [&] {
                 (void)codec.part_box(source.shape, 0, {{0, 1, 64}, {2, 3, 128}});
               },
               {"whole blocks of 128"});
}

TEST_P(OwnCodec, TenResumesDoNotDrift) {
  const Source source = {"w", {40, 33}};
  const Encoded first = encode_whole(codec, source, gaussian_state(40 * 33, 3).view());
  Encoded last = first;
  for (int i = 0; i < 10; ++i) {
    last = encode_whole(codec, source, decoded(codec, source, last, Division::kTrue).view());
  }
  EXPECT_EQ(last, first);
}

TEST_P(OwnCodec, RefusesByNameAndPlace) {
  const Source source = {"layer.0/w\n", {32, 40}};
  const auto refusal = [&](std::size_t at, float m, float v) {
    return [&, at, m, v] {
      State state = gaussian_state(32 * 40, 1);
      state.m[at] = m;
      state.v[at] = v;
      (void)encode_whole(codec, source, state.view());
    };
  };
  const float nan = std::numeric_limits<float>::quiet_NaN();
  refusal(700, 1, 0)();
  expect_error(ErrorKind::kState, refusal(700, nan, 1), {"'layer.0/w\\x0a'", "m is nan", "at [17, 20]", "quant=off"});
  expect_error(ErrorKind::kState, refusal(0, 1, nan), {"v is nan at [0, 0]", codec.traits().name});
  expect_error(ErrorKind::kState, refusal(1279, 1, -2), {"v is -2 at [31, 39]"});
  expect_error(ErrorKind::kState, refusal(128, -1e20F, 1), {"m is -1e+20", "at [3, 8]", "2^40"});
}

TEST_P(OwnCodec, DamagedCodesAreRefused) {
  const Source source = {"w", {32, 40}};
  State state = gaussian_state(32 * 40, 1);
  Encoded encoded = encode_whole(codec, source, state.view());
  const auto block_bytes = static_cast<std::ptrdiff_t>(encoded[0].size() / 10);
  // All codes at their maximum (q8: 108,543, q4: 607): more than there are pairs of u and v levels in any block.
  std::fill(encoded[0].begin() + 7 * block_bytes + 4, encoded[0].begin() + 8 * block_bytes, std::byte{0xff});
  expect_error(ErrorKind::kFormat, [&] { decoded(codec, source, encoded, Division::kTrue); },
               {"'w'", "at [22, 16]", codec.traits().name, "damaged"});
}

TEST_P(OwnCodec, SmallTensorsAreLeftAlone) {
  EXPECT_EQ(codec.left_alone({}), "it has fewer than 2 dimensions");
  EXPECT_EQ(codec.left_alone({4096}), "it has fewer than 2 dimensions");
  EXPECT_EQ(codec.left_alone({32, 31}), "it has fewer than 1024 elements");
  EXPECT_EQ(codec.left_alone({0, 31}), "it has fewer than 1024 elements");
  EXPECT_EQ(codec.left_alone({32, 32}), "");
  EXPECT_EQ(codec.left_alone({2, 3, 4, 1000}), "");
  EXPECT_EQ(codec.left_alone({1, 1, 1, 1, 1, 2, 3, 1280}), "it has more than 7 dimensions");
  expect_error(ErrorKind::kInternal, [&] { (void)codec.parts({100}); }, {"[100]", "not coded"});
}

TEST_P(OwnCodec, WrongCallsAreBugs) {
  const Source source = {"w", {32, 40}};
  State state = gaussian_state(32 * 40, 1);
  const auto encode = [&](const Box& box, std::size_t elements, std::size_t bytes) {
    return [&, box, elements, bytes] {
      base::Bytes out(bytes);
      const std::vector<std::span<std::byte>> parts = {out};
      const ConstMoments moments = {std::span(state.m).first(elements), std::span(state.v).first(elements)};
      codec.encode(source, box, moments, {}, parts);
    };
  };
  const std::size_t bytes = codec.parts(source.shape)[0].shape[1];
  encode({{128}, {128}}, 128, bytes)();
  expect_error(ErrorKind::kInternal, encode({{64}, {128}}, 128, bytes), {"[64]", "whole blocks of 128"});
  expect_error(ErrorKind::kInternal, encode({{128}, {127}}, 127, bytes), {"[127]", "whole blocks"});
  expect_error(ErrorKind::kInternal, encode({{1280}, {128}}, 128, bytes), {"[1280]", "in [1280]"});
  expect_error(ErrorKind::kInternal, encode({{128}, {128}}, 127, bytes), {"another size"});
  expect_error(ErrorKind::kInternal, encode({{128}, {128}}, 128, bytes - 1), {"another size"});
}

/// tests/data/quant/own.safetensors: moments, their bytes in both codecs, and the decoded values.
TEST_P(OwnCodec, TheFormatDoesNotDrift) {
  const GoldenTensors golden = read_tensors(cairn::test::test_data("quant/own.safetensors"));
  const State state(floats(golden, "m"), floats(golden, "v"));
  const std::string& name = codec.traits().name;
  const Source source = {"w", golden.at("m").shape};
  const Encoded encoded = encode_whole(codec, source, state.view());
  EXPECT_TRUE(same_own_codes(codec, codec.parts(source.shape)[0], encoded[0], golden.at(name)));
  const State back = decoded(codec, source, {golden.at(name).bytes}, Division::kTrue);
  EXPECT_TRUE(same_floats(back.m, floats(golden, name + "/m")));
  EXPECT_TRUE(same_floats(back.v, floats(golden, name + "/v")));
}

}  // namespace
}  // namespace cairn::quant::test
