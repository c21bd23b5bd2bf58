// The optimizer files of whole O1 and O2 checkpoints that Paddle wrote. Encoding the true moments gives exactly
// the codes, scales and names of the file, and decoding the file gives nearly the true moments.
#include <algorithm>
#include <cmath>

#include "environment.hpp"
#include "golden_file.hpp"
#include "paddle_samples.hpp"

namespace cairn::quant::test {
namespace {

constexpr std::string_view kTruthPrefix = "moment1_0/";

/// All tensors in the optimizer files of a checkpoint.
GoldenTensors optimizer_of(const std::string& directory) {
  GoldenTensors tensors;
  for (const auto& entry : std::filesystem::directory_iterator(cairn::test::test_data("paddle/" + directory))) {
    const std::string name = entry.path().filename();
    if (!name.starts_with("optimizer-") || !name.ends_with(".safetensors")) continue;
    tensors.merge(read_tensors(entry.path()));
  }
  return tensors;
}

/// Expects m to be within its promised bound. The decoded r is not visible, but v must not be NaN or negative.
void check_bounds(const Codec& codec, const State& truth, const State& found, const std::string& name) {
  float largest = 0;
  for (const float m : truth.m) largest = std::max(largest, std::fabs(m));
  const float bound = largest / (codec.traits().bits == 8 ? 254.0F : 14.0F) * 1.00001F;
  ASSERT_FALSE(truth.m.empty());
  for (std::size_t i = 0; i < truth.m.size(); ++i) {
    ASSERT_LE(std::fabs(found.m[i] - truth.m[i]), bound) << name << " element " << i;
    ASSERT_TRUE(found.v[i] >= 0) << name << " element " << i;
  }
}

class PaddleSamples : public testing::TestWithParam<cairn::test::PaddleSample> {};

TEST_P(PaddleSamples, AreWhatTheTruthEncodesTo) {
  const Codec& codec = find_codec(GetParam().codec);
  const GoldenTensors truth =
      read_tensors(cairn::test::test_data("paddle/truth/" + std::string(GetParam().truth) + ".safetensors"));
  GoldenTensors stored = optimizer_of(GetParam().directory);
  const auto scalars = std::erase_if(stored, [](const auto& tensor) { return tensor.first.ends_with("_pow_acc_0"); });
  EXPECT_EQ(scalars, 2 * (GetParam().coded + GetParam().kept));
  std::size_t coded = 0;
  std::size_t kept = 0;
  for (const auto& [key, tensor] : truth) {
    if (!key.starts_with(kTruthPrefix)) continue;
    const Source source = {key.substr(kTruthPrefix.size()), tensor.shape};
    const MomentNames names = {source.name + "/moment1_0", source.name + "/moment2_0"};
    const State state(floats(truth, key), floats(truth, "moment2_0/" + source.name));
    if (!codec.left_alone(source.shape).empty()) {
      ASSERT_TRUE(stored.contains(names.first) && stored.contains(names.second)) << source.name;
      EXPECT_TRUE(same_floats(state.m, floats(stored, names.first))) << source.name;
      EXPECT_TRUE(same_floats(state.v, floats(stored, names.second))) << source.name;
      stored.erase(names.first);
      stored.erase(names.second);
      ++kept;
      continue;
    }
    const auto parts = codec.parts(source.shape);
    const Encoded encoded = encode_whole(codec, source, state.view());
    Encoded from_file;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const std::string name = stored_name(parts[i], names);
      ASSERT_TRUE(stored.contains(name)) << name;
      EXPECT_TRUE(same_part(parts[i], encoded[i], stored.at(name))) << name;
      from_file.push_back(stored.at(name).bytes);
      stored.erase(name);
    }
    check_bounds(codec, state, decoded(codec, source, from_file, Division::kTrue), source.name);
    ++coded;
  }
  EXPECT_EQ(coded, GetParam().coded);
  EXPECT_EQ(kept, GetParam().kept);
  for (const auto& [name, tensor] : stored) ADD_FAILURE() << "stored but not encoded: " << name;
}

INSTANTIATE_TEST_SUITE_P(All, PaddleSamples, testing::ValuesIn(cairn::test::kPaddleSamples),
                         [](const auto& sample) { return sample.param.name(); });

}  // namespace
}  // namespace cairn::quant::test
