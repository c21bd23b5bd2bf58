// The splitting rule against vectors taken from huggingface_hub (tests/data/hf_split.json).
#include "format/hf_index.hpp"

#include <map>

#include "base/text.hpp"
#include "helpers.hpp"
#include "nlohmann/json.hpp"

namespace cairn::format::testing {
namespace {

using nlohmann::json;

std::vector<SplitItem> items_of(const json& list) {
  std::map<std::string, std::int64_t> storages;
  std::vector<SplitItem> out;
  for (const json& item : list) {
    SplitItem split{item[1].get<std::uint64_t>(), -1};
    if (!item[2].is_null()) {
      split.storage = storages.try_emplace(item[2].dump(), static_cast<std::int64_t>(storages.size())).first->second;
    }
    out.push_back(split);
  }
  return out;
}

std::uint64_t limit_of(const json& value) {
  return value.is_string() ? base::parse_size(value.get<std::string>()) : value.get<std::uint64_t>();
}

TEST(SplitHf, AssignsAsHuggingFaceDoes) {
  const json vectors = json::parse(read_file(test_data("hf_split.json")))["split"];
  int cases = 0;
  for (const json& vector : vectors) {
    SCOPED_TRACE(vector["name"]);
    const auto files = split_hf(items_of(vector["items"]), limit_of(vector["max_shard_size"]));
    const std::string pattern = vector["pattern"];
    const std::string stem = pattern.substr(0, pattern.find("{suffix}"));
    json found = json::object();
    for (std::size_t f = 0; f < files.size(); ++f) {
      json& names = found[hf_file_name(stem, f, files.size())];
      for (const std::size_t i : files[f]) names.push_back(vector["items"][i][0]);
    }
    EXPECT_EQ(found, vector["filename_to_tensors"]);
    ++cases;
  }
  EXPECT_EQ(cases, 16);
}

TEST(SplitHf, HandlesTheLimitsOfSizes) {
  const std::uint64_t most = ~0ULL;
  EXPECT_TRUE(split_hf({}, 0).empty());
  EXPECT_EQ(split_hf(std::vector<SplitItem>{{0, -1}, {0, -1}}, 0).size(), 1u);
  EXPECT_EQ(split_hf(std::vector<SplitItem>{{1, -1}, {1, -1}}, 0).size(), 2u);
  EXPECT_EQ(split_hf(std::vector<SplitItem>{{most, -1}, {0, -1}}, most).size(), 1u);
  EXPECT_EQ(split_hf(std::vector<SplitItem>{{most, -1}, {1, -1}}, most).size(), 2u);
  EXPECT_EQ(split_hf(std::vector<SplitItem>{{1ULL << 63, -1}, {1ULL << 63, -1}}, most).size(), 2u);
}

TEST(HfFileName, CountsFromOneWithFiveDigitsOrMore) {
  EXPECT_EQ(hf_file_name("model", 0, 1), "model.safetensors");
  EXPECT_EQ(hf_file_name("model", 0, 2), "model-00001-of-00002.safetensors");
  EXPECT_EQ(hf_file_name("optimizer", 99'999, 100'000), "optimizer-100000-of-100000.safetensors");
  expect_error(ErrorKind::kInternal, [] { hf_file_name("m", 2, 2); }, {"file 2 of 2"});
}

}  // namespace
}  // namespace cairn::format::testing
