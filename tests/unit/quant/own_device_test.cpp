// q8 and q4 on a device compared with the host's codec: blocks of every kind, short blocks, any alignment,
// refusals.
#include <bit>
#include <cmath>

#include "device_data.hpp"
#include "environment.hpp"
#include "quant/boxes.hpp"
#include "quant/own_codec.hpp"
#include "random_blocks.hpp"
#include "shard/box_math.hpp"

namespace cairn::quant::test {
namespace {

using own::kBlockElements;
using own::test::Maker;

struct OwnDevice : OnDeviceTest, testing::WithParamInterface<const Codec*> {
  const Codec& codec = *GetParam();
  const own::Format& format = codec.traits().bits == 8 ? own::kQ8 : own::kQ4;
};

INSTANTIATE_TEST_SUITE_P(Codecs, OwnDevice, testing::Values(&own_q8(), &own_q4()),
                         [](const auto& test) { return test.param->traits().name; });

/// Blocks of every kind one after another; the last block may be cut.
State random_state(Maker& make, std::size_t elements) {
  State state(elements);
  for (std::size_t begin = 0, i = make.random() % own::test::kKinds; begin < elements; begin += kBlockElements, ++i) {
    const own::Values values = own::test::random_block(make, static_cast<int>(i % own::test::kKinds));
    const std::size_t count = std::min(kBlockElements, elements - begin);
    std::copy_n(values.m.begin(), count, state.m.begin() + static_cast<std::ptrdiff_t>(begin));
    std::copy_n(values.v.begin(), count, state.v.begin() + static_cast<std::ptrdiff_t>(begin));
  }
  return state;
}

Job whole_job(const Codec& codec, const std::string& name, std::uint64_t elements, std::size_t shift = 0) {
  const Source source = {name, {1, elements}};
  return {codec, source, shard::whole(codec.view(source.shape)), shift};
}

TEST_P(OwnDevice, BlocksOfEveryKind) {
  Maker make;
  for (int i = 0; i < 24; ++i) {
    const std::uint64_t elements = 500 * kBlockElements;
    expect_same_coding(whole_job(codec, "w" + std::to_string(i), elements), random_state(make, elements));
  }
}

TEST_P(OwnDevice, AnyLengthAtAnyAddress) {
  Maker make;
  for (std::uint64_t elements = 1024; elements <= 1024 + 600; elements += 1 + make.random() % 5) {
    const std::size_t shift = make.random() % 4;
    expect_same_coding(whole_job(codec, "of " + std::to_string(elements), elements, shift),
                       random_state(make, elements));
  }
}

TEST_P(OwnDevice, RunsOfBlocksOfATensor) {
  Maker make;
  const Source source = {"w", {37, 301}};
  const std::uint64_t all = 37 * 301;
  for (const std::uint64_t begin : {0U, 128U, 1280U, 11008U}) {
    for (const std::uint64_t blocks : {1U, 3U, 4U, 5U, 9U, 1000U}) {
      const std::uint64_t count = std::min(blocks * kBlockElements, all - begin);
      expect_same_coding({codec, source, {{begin}, {count}}, 1}, random_state(make, count));
    }
  }
}

TEST_P(OwnDevice, GaussianMoments) {
  Maker make;
  std::normal_distribution<double> gauss;
  State state(300'000);
  for (std::size_t i = 0; i < state.m.size(); ++i) {
    const double v = std::exp(-25 + 3 * gauss(make.random));
    state.v[i] = static_cast<float>(v);
    state.m[i] = static_cast<float>(gauss(make.random) * std::sqrt(v));
  }
  expect_same_coding(whole_job(codec, "w", state.m.size()), state);
}

TEST_P(OwnDevice, TheFirstRefusedPairIsNamedAsOnTheHost) {
  Maker make;
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinity = std::numeric_limits<float>::infinity();
  const std::vector<std::pair<float, float>> pairs = {
      {nan, 1},      {infinity, 1},           {-infinity, 1}, {1, nan},   {1, -1},        {1, infinity},
      {0, infinity}, {0, -own::test::kLeast}, {1, 1e-26F},    {1e30F, 1}, {1e38F, 1e38F}, {16384, 0}};
  int refused = 0;
  for (int i = 0; i < 200; ++i) {
    const std::uint64_t elements = 1024 + make.random() % 3000;
    const Job job = whole_job(codec, "layer\n" + std::to_string(i), elements, make.random() % 4);
    State state = random_state(make, elements);
    for (std::uint64_t k = 0; k <= make.random() % 4; ++k) {
      const std::size_t at = make.random() % elements;
      const auto& pair = pairs[make.random() % pairs.size()];
      state.m[at] = pair.first;
      state.v[at] = pair.second;
    }
    if (i % 4 == 0) {  // many in one block, so that a lane has several
      const std::size_t block = make.random() % (elements / kBlockElements) * kBlockElements;
      for (int k = 0; k < 40; ++k) state.v[block + make.random() % kBlockElements] = -static_cast<float>(k + 1);
    }
    const Answer expected = encoded_on_host(job, state, {});
    refused += expected.kind == ErrorKind::kState ? 1 : 0;
    EXPECT_TRUE(same_answer(codec, job.source, encoded_on_device(job, state, {}), expected));
  }
  EXPECT_EQ(refused, 200);
}

TEST_P(OwnDevice, TheStoredFormat) {
  const GoldenTensors golden = read_tensors(cairn::test::test_data("quant/own.safetensors"));
  const State state(floats(golden, "m"), floats(golden, "v"));
  const std::string& name = codec.traits().name;
  const Source source = {"w", golden.at("m").shape};
  const Job job = {codec, source, shard::whole(codec.view(source.shape)), 0};
  const Answer encoded = encoded_on_device(job, state, {});
  ASSERT_FALSE(encoded.kind) << encoded.error;
  EXPECT_TRUE(same_own_codes(codec, codec.parts(source.shape)[0], encoded.parts[0], golden.at(name)));
}

TEST_P(OwnDevice, WrongCallsAreBugs) {
  const Job job = whole_job(codec, "w", 1280);
  const DeviceCodec& on_device = device_codec_of(codec);
  const gpu::Stream stream;
  const DeviceState moments(State(1280), 0, stream);
  Verdict verdict;
  const std::uint64_t bytes = 10 * format.block_bytes;
  const gpu::DeviceBuffer buffer(bytes + 8);
  const auto encode = [&](const Box& box, std::vector<gpu::DeviceSpan> parts) {
    return [&, box, parts] { on_device.encode(job.source, box, moments.view(), {}, parts, verdict, stream); };
  };
  expect_error(ErrorKind::kInternal, encode(job.box, {}), {"0 parts instead of 1"});
  expect_error(ErrorKind::kInternal, encode(job.box, {buffer.span()}), {"'w'", "bytes instead of"});
  expect_error(ErrorKind::kInternal, encode(job.box, {buffer.span().subspan(4, bytes)}), {"multiple of 8"});
  expect_error(ErrorKind::kInternal, encode({{64}, {128}}, {buffer.span()}), {"whole blocks"});
}

}  // namespace
}  // namespace cairn::quant::test
