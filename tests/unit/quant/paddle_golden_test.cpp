// Every case of tests/data/paddle-quant, bit for bit: stored parts, their names, and the values decoded by both rules.
#include <algorithm>

#include "environment.hpp"
#include "golden_file.hpp"
#include "nlohmann/json.hpp"
#include "quant/paddle_codec.hpp"
#include "quant/paddle_kernels.hpp"

namespace cairn::quant::test {
namespace {

using nlohmann::json;

const MomentNames kNames = {"moment1_0", "moment2_0"};

/// The files of the folder, read once.
struct Golden {
  json index = json::parse(cairn::test::read_file(cairn::test::test_data("paddle-quant/index.json")));
  GoldenTensors vectors = read_tensors(cairn::test::test_data("paddle-quant/vectors.safetensors"));
  GoldenTensors older = read_tensors(cairn::test::test_data("paddle-quant/decoded_paddle3.0.0.safetensors"));
};

const Golden& golden() {
  static const Golden all;
  return all;
}

Encoded stored_parts(const Codec& codec, const Source& source, const std::string& prefix) {
  Encoded encoded;
  for (const Part& part : codec.parts(source.shape)) {
    encoded.push_back(golden().vectors.at(prefix + stored_name(part, kNames)).bytes);
  }
  return encoded;
}

/// The keys that Paddle wrote for the moments.
std::vector<std::string> keys_of(const json& stage) {
  auto keys = stage.at("keys").get<std::vector<std::string>>();
  EXPECT_EQ(std::erase(keys, "beta1_pow_acc_0"), 1u);
  std::sort(keys.begin(), keys.end());
  return keys;
}

void check_codes(const Codec& codec, const Source& source, const json& stage, const std::string& prefix) {
  const auto m = floats(golden().vectors, source.name + "/m1");
  const auto v = floats(golden().vectors, source.name + "/m2");
  const auto parts = codec.parts(source.shape);
  const Encoded encoded = encode_whole(codec, source, {m, v});
  std::vector<std::string> names;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    names.push_back(stored_name(parts[i], kNames));
    EXPECT_TRUE(same_part(parts[i], encoded[i], golden().vectors.at(prefix + names.back()))) << prefix << names.back();
  }
  std::sort(names.begin(), names.end());
  EXPECT_EQ(names, keys_of(stage)) << prefix;
}

void check_decoded(const Codec& codec, const Source& source, const std::string& prefix) {
  const Encoded encoded = stored_parts(codec, source, prefix);
  const State newer = decoded(codec, source, encoded, Division::kTrue);
  EXPECT_TRUE(same_floats(newer.m, floats(golden().vectors, prefix + "m1_decoded_pd"))) << prefix;
  EXPECT_TRUE(same_floats(newer.v, floats(golden().vectors, prefix + "m2_decoded_pd"))) << prefix;
  const State older = decoded(codec, source, encoded, Division::kReciprocal);
  EXPECT_TRUE(same_floats(older.m, floats(golden().older, prefix + "m1_decoded"))) << prefix;
  EXPECT_TRUE(same_floats(older.v, floats(golden().older, prefix + "m2_decoded"))) << prefix;
}

struct Count {
  int coded = 0;
  int kept = 0;     ///< Paddle left the moments F32
  int refused = 0;  ///< Paddle's save failed; Cairn leaves the moments F32
};

Count check_all(const Codec& codec, const std::string& stage_name) {
  Count count;
  for (const json& entry : golden().index.at("cases")) {
    const Source source = {entry.at("name"), entry.at("shape").get<Shape>()};
    const json& stage = entry.at(stage_name);
    const std::string prefix = source.name + "/" + stage_name + "/";
    const std::string reason = codec.left_alone(source.shape);
    if (stage.at("save") == "ok" && keys_of(stage).size() > 2) {
      EXPECT_EQ(reason, "") << prefix;
      check_codes(codec, source, stage, prefix);
      check_decoded(codec, source, prefix);
      ++count.coded;
      continue;
    }
    EXPECT_NE(reason, "") << prefix;
    if (stage.at("save") != "ok") {
      ++count.refused;
      continue;
    }
    EXPECT_EQ(golden().vectors.at(prefix + "moment1_0").bytes, golden().vectors.at(source.name + "/m1").bytes);
    EXPECT_EQ(golden().vectors.at(prefix + "moment2_0").bytes, golden().vectors.at(source.name + "/m2").bytes);
    ++count.kept;
  }
  return count;
}

TEST(PaddleGolden, EveryCaseOfO1) {
  const Count count = check_all(paddle_o1(), "O1");
  EXPECT_EQ(count.coded, 127);
  EXPECT_EQ(count.kept, 0);
  EXPECT_EQ(count.refused, 2);
}

TEST(PaddleGolden, EveryCaseOfO2) {
  const Count count = check_all(paddle_o2(), "O2");
  EXPECT_EQ(count.coded, 60);
  EXPECT_EQ(count.kept, 32);
  EXPECT_EQ(count.refused, 37);
}

/// v from decoded r, computed in the same way by both rules.
std::vector<float> moments_of(std::vector<float> ratios) {
  for (float& value : ratios) {
    const float root = 1.0F / value - paddle::kEpsilon;
    value = root * root;
  }
  return ratios;
}

TEST(PaddleGolden, EveryCodeOfO1WithSeveralScales) {
  const auto& vectors = golden().vectors;
  const Source source = {"all_o1", vectors.at("all_o1_m/codes").shape};
  Encoded encoded;
  for (const char* name : {"m/codes", "m/scales", "r/codes", "r/mins", "r/maxs"}) {
    encoded.push_back(vectors.at(std::string("all_o1_") + name).bytes);
  }
  const State newer = decoded(paddle_o1(), source, encoded, Division::kTrue);
  EXPECT_TRUE(same_floats(newer.m, floats(vectors, "all_o1_m/decoded_pd")));
  EXPECT_TRUE(same_floats(newer.v, floats(vectors, "all_o1_r/v_decoded_pd")));
  const State older = decoded(paddle_o1(), source, encoded, Division::kReciprocal);
  EXPECT_TRUE(same_floats(older.m, floats(golden().older, "all_o1_m/decoded")));
  EXPECT_TRUE(same_floats(older.v, moments_of(floats(golden().older, "all_o1_r/decoded"))));
  // The two rules differ for 16 codes of m.
  EXPECT_FALSE(same_floats(newer.m, older.m));
}

TEST(PaddleGolden, EveryByteOfO2WithSeveralScales) {
  const auto& vectors = golden().vectors;
  const Source source = {"all_o2", vectors.at("all_o2/bytes").shape};
  Encoded encoded;
  for (const char* name : {"bytes", "m_scales", "mins", "maxs"}) {
    encoded.push_back(vectors.at(std::string("all_o2/") + name).bytes);
  }
  const State newer = decoded(paddle_o2(), source, encoded, Division::kTrue);
  EXPECT_TRUE(same_floats(newer.m, floats(vectors, "all_o2/m_decoded_pd")));
  EXPECT_TRUE(same_floats(newer.v, floats(vectors, "all_o2/v_decoded_pd")));
}

TEST(PaddleGolden, EveryPairOfFourBitCodesIsPackedAsPaddleDoes) {
  const auto& vectors = golden().vectors;
  const auto& m_codes = vectors.at("merge_int4/x").bytes;
  const auto& r_codes = vectors.at("merge_int4/y").bytes;
  ASSERT_EQ(m_codes.size(), 256u);
  // Moments with these codes and the scales 7, 0 and 15: m is the first code, and r = 1/sqrt(v) the second.
  std::vector<float> m;
  std::vector<float> v;
  for (std::size_t i = 0; i < m_codes.size(); ++i) {
    m.push_back(static_cast<float>(static_cast<std::int8_t>(m_codes[i])));
    const float root = 1.0F / static_cast<float>(r_codes[i]);
    v.push_back(root * root);
  }
  const std::vector<float> sevens(256, 7.0F);
  const std::vector<float> zeros(256, 0.0F);
  const std::vector<float> fifteens(256, 15.0F);
  base::Bytes packed(256);
  paddle::encode_row_o2({m.data(), v.data(), 256}, {sevens.data(), zeros.data(), fifteens.data()},
                        reinterpret_cast<std::uint8_t*>(packed.data()));
  EXPECT_EQ(packed, vectors.at("merge_int4/out").bytes);
}

}  // namespace
}  // namespace cairn::quant::test
