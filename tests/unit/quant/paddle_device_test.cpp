// Paddle's codecs on a device compared with the host's: statistics, codes, refusals, golden cases.
#include <cmath>
#include <limits>
#include <random>

#include "device_data.hpp"
#include "environment.hpp"
#include "nlohmann/json.hpp"
#include "quant/boxes.hpp"
#include "quant/codec.hpp"
#include "quant/paddle_codec.hpp"
#include "random.hpp"
#include "shard/box_math.hpp"

namespace cairn::quant::test {
namespace {

using Random = std::mt19937_64;

struct PaddleDevice : OnDeviceTest, testing::WithParamInterface<const Codec*> {
  const Codec& codec = *GetParam();
  bool is_o1 = codec.traits().bits == 8;
};

INSTANTIATE_TEST_SUITE_P(Codecs, PaddleDevice, testing::Values(&paddle_o1(), &paddle_o2()),
                         [](const auto& test) { return test.param->traits().bits == 8 ? "o1" : "o2"; });

/// Finite moments over many orders of magnitude, some denormal or huge, with zeros and almost constant columns of v.
State random_state(Random& random, const Shape& shape) {
  std::normal_distribution<float> normal;
  State state(elements_of(shape));
  const std::size_t columns = shape.back();
  for (std::size_t i = 0; i < state.m.size(); ++i) {
    const float width = i % columns % 7 == 3 ? 0.0F : 4.0F;
    state.v[i] = random() % 17 == 0 ? 0.0F : std::exp(-25.0F + width * normal(random));
    state.m[i] = random() % 19 == 0 ? 0.0F : normal(random) * std::sqrt(state.v[i]);
    if (random() % 100 == 0) state.v[i] = std::ldexp(1.0F, static_cast<int>(random() % 276) - 149);
    if (random() % 100 == 0) state.m[i] = std::ldexp(-1.0F, static_cast<int>(random() % 276) - 149);
  }
  return state;
}

std::vector<Shape> shapes(bool is_o1) {
  const std::vector<Shape> both = {{32, 1},  {32, 3},   {32, 4},    {64, 33},  {96, 300},
                                   {160, 7}, {64, 128}, {128, 256}, {32, 516}, {96, 1000}};
  if (!is_o1) return both;
  std::vector<Shape> all = {{1},    {3},    {4},    {255},   {1000},    {1024},   {1025},
                            {5000}, {1, 1}, {1, 9}, {33, 5}, {31, 128}, {65, 40}, {7, 1000}};
  all.insert(all.end(), both.begin(), both.end());
  return all;
}

Box random_box(Random& random, const Shape& shape) {
  Box box;
  for (const std::uint64_t extent : shape) {
    const std::uint64_t begin = random() % extent;
    box.offset.push_back(begin);
    box.shape.push_back(1 + random() % (extent - begin));
  }
  return box;
}

State cut(const State& state, const Shape& shape, const Box& box) {
  State out(0);
  const std::uint64_t columns = shape.back();
  const std::uint64_t rows = box.shape.size() == 2 ? box.shape[0] : 1;
  for (std::uint64_t row = 0; row < rows; ++row) {
    const std::uint64_t begin = (shape.size() == 2 ? (box.offset[0] + row) * columns : 0) + box.offset.back();
    out.m.insert(out.m.end(), &state.m[begin], &state.m[begin] + box.shape.back());
    out.v.insert(out.v.end(), &state.v[begin], &state.v[begin] + box.shape.back());
  }
  return out;
}

Statistics measured_on_device(const Job& job, const State& state) {
  const gpu::Stream stream;
  const DeviceState moments(state, job.shift, stream);
  Statistics found = job.codec.no_statistics(job.source.shape, job.box);
  device_codec_of(job.codec).measure(job.source, job.box, moments.view(), found, stream);
  return found;
}

void expect_same_statistics(const Statistics& found, const Statistics& expected) {
  ASSERT_EQ(found.arrays.size(), 3u);
  EXPECT_EQ(found.box, expected.box);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_TRUE(same_floats(found.arrays[i].values, expected.arrays[i].values)) << i;
}

TEST_P(PaddleDevice, WholeTensors) {
  Random random = cairn::test::make_random();
  for (int round = 0; round < 8; ++round) {
    for (const Shape& shape : shapes(is_o1)) {
      const Job job = {
          codec, {shard::shape_text(shape), shape}, shard::whole(shape), static_cast<std::size_t>(round % 4)};
      const State state = random_state(random, shape);
      Statistics expected = codec.no_statistics(shape, job.box);
      codec.measure(job.source, job.box, state.view(), expected);
      expect_same_statistics(measured_on_device(job, state), expected);
      expect_same_coding(job, state);
    }
  }
}

TEST_P(PaddleDevice, AnyBoxWithTheStatisticsOfTheWhole) {
  Random random = cairn::test::make_random();
  for (int round = 0; round < 20; ++round) {
    for (const Shape& shape : shapes(is_o1)) {
      const Box box = random_box(random, shape);
      const Job job = {codec, {shard::shape_text(shape), shape}, box, random() % 4};
      const State whole = random_state(random, shape);
      const State state = cut(whole, shape, box);
      Statistics statistics = codec.no_statistics(shape, shard::whole(shape));
      codec.measure(job.source, shard::whole(shape), whole.view(), statistics);
      const Answer expected = encoded_on_host(job, state, statistics);
      ASSERT_FALSE(expected.kind) << expected.error;
      EXPECT_TRUE(same_answer(codec, job.source, encoded_on_device(job, state, statistics), expected))
          << job.source.name;
      Statistics of_box = codec.no_statistics(shape, box);
      codec.measure(job.source, box, state.view(), of_box);
      expect_same_statistics(measured_on_device(job, state), of_box);
    }
  }
}

TEST_P(PaddleDevice, ScalesThatAreNotFiniteGiveTheSameCodes) {
  Random random = cairn::test::make_random();
  const Shape shape = {64, 40};
  const Job job = {codec, {"w", shape}, shard::whole(shape), 0};
  State state = random_state(random, shape);
  state.m[17] = std::numeric_limits<float>::quiet_NaN();
  state.v[90] = -1.0F;
  state.m[1201] = -std::numeric_limits<float>::infinity();
  state.v[2000] = std::numeric_limits<float>::infinity();
  expect_same_coding(job, state);
}

TEST_P(PaddleDevice, TheFirstUnusualMomentIsNamedAsOnTheHost) {
  Random random = cairn::test::make_random();
  const std::vector<float> unusual = {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                                      -std::numeric_limits<float>::infinity()};
  int refused = 0;
  for (int round = 0; round < 10; ++round) {
    for (const Shape& shape : shapes(is_o1)) {
      const Box box = random_box(random, shape);
      const Job job = {codec, {"w\n", shape}, box, random() % 4};
      State state = cut(random_state(random, shape), shape, box);
      for (std::uint64_t k = 0; k <= random() % 3; ++k) {
        const std::size_t at = random() % state.m.size();
        (random() % 2 == 0 ? state.m : state.v)[at] = unusual[random() % 3];
        if (random() % 4 == 0) state.v[random() % state.v.size()] = -1e-40F;
      }
      std::string expected;
      try {
        refuse_unusual_moments(codec, job.source, box, state.view());
      } catch (const Error& error) {
        expected = error.what();
      }
      expect_error(ErrorKind::kState, [&] { (void)measured_on_device(job, state); }, {expected});
      ++refused;
    }
  }
  EXPECT_GT(refused, 90);
}

TEST_P(PaddleDevice, GoldenCases) {
  const auto index = nlohmann::json::parse(cairn::test::read_file(cairn::test::test_data("paddle-quant/index.json")));
  const GoldenTensors vectors = read_tensors(cairn::test::test_data("paddle-quant/vectors.safetensors"));
  const std::string stage = is_o1 ? "O1" : "O2";
  int coded = 0;
  for (const auto& entry : index.at("cases")) {
    const Source source = {entry.at("name"), entry.at("shape").get<Shape>()};
    if (!codec.left_alone(source.shape).empty()) continue;
    const Job job = {codec, source, shard::whole(source.shape), 0};
    const State state(floats(vectors, source.name + "/m1"), floats(vectors, source.name + "/m2"));
    Statistics statistics = codec.no_statistics(source.shape, job.box);
    codec.measure(source, job.box, state.view(), statistics);
    const Answer encoded = encoded_on_device(job, state, statistics);
    ASSERT_FALSE(encoded.kind) << encoded.error;
    const auto parts = codec.parts(source.shape);
    const std::string prefix = source.name + "/" + stage + "/";
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const GoldenTensor& golden = vectors.at(prefix + stored_name(parts[i], {"moment1_0", "moment2_0"}));
      EXPECT_TRUE(same_part(parts[i], encoded.parts[i], golden)) << prefix;
    }
    ++coded;
  }
  EXPECT_EQ(coded, is_o1 ? 127 : 60);
}

}  // namespace
}  // namespace cairn::quant::test
