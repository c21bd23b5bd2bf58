// Every file of tests/data/safetensors-corpus gives the result in expected.json: the verdict and the error kind of the
// reference, or the stricter verdict in "recommended".
#include <map>
#include <optional>

#include "helpers.hpp"
#include "nlohmann/json.hpp"

namespace cairn::format::testing {
namespace {

using nlohmann::json;

constexpr const char* kAccepted = "OK";

/// Files that Cairn refuses and the reference accepts; and d03, which the reference refuses for a different reason:
/// the last entry, the only one that it uses, does not fit the file. Cairn reports the duplicate.
const std::map<std::string, std::string>& stricter() {
  static const std::map<std::string, std::string> kinds = {
      {"c11_shape_100k_ones", "RankTooLarge"},
      {"d01_dup_tensor", "DuplicateKey"},
      {"d03_dup_tensor_diff_first", "DuplicateKey"},
      {"d05_dup_key_in_metadata", "DuplicateKey"},
      {"d29_tensor_array_form", "InvalidHeaderDeserialization"},
  };
  return kinds;
}

std::string expected_verdict(const json& entry) {
  const auto own = stricter().find(entry["id"].get<std::string>());
  if (own != stricter().end()) return own->second;
  const bool reject = entry["recommended"].is_string() && entry["recommended"].get<std::string>().starts_with("reject");
  EXPECT_FALSE(reject) << entry["id"] << " should be refused, and this test does not say how";
  return entry["ref"] == "OK" ? kAccepted : entry["kind"].get<std::string>();
}

std::string verdict_on(const std::string& file, const std::string& path) {
  try {
    read_safetensors(file, path);
    return kAccepted;
  } catch (const SafetensorsError& error) {
    expect_one_line(error.what(), {path});
    return name_of(error.safetensors_kind());
  }
}

TEST(SafetensorsCorpus, HasTheVerdictsOfTheReference) {
  const std::string root = test_data("safetensors-corpus/");
  const json expected = json::parse(read_file(root + "expected.json"));
  int checked = 0;
  int accepted = 0;
  int rejected_on_advice = 0;
  for (const json& entry : expected) {
    const std::string path = root + entry["file"].get<std::string>();
    const std::string want = expected_verdict(entry);
    EXPECT_EQ(verdict_on(read_file(path), path), want) << entry["id"] << ": " << entry["desc"];
    ++checked;
    accepted += want == kAccepted;
    rejected_on_advice += entry["ref"] == "OK" && want != kAccepted;
  }
  EXPECT_EQ(checked, 122);
  EXPECT_EQ(accepted, 36);
  EXPECT_EQ(rejected_on_advice, 4);
}

TEST(SafetensorsCorpus, KeepsNamesThatArePathsOrHoldNul) {
  const std::string root = test_data("safetensors-corpus/");
  const auto path_like = read_safetensors(read_file(root + "b30_path_name.st"), "x");
  ASSERT_EQ(path_like.tensors.size(), 1u);
  EXPECT_THAT(path_like.tensors[0].name, ::testing::HasSubstr("/"));
  const auto nul = read_safetensors(read_file(root + "b25_escaped_ctrl.st"), "x");
  ASSERT_EQ(nul.tensors.size(), 1u);
  EXPECT_NE(nul.tensors[0].name.find('\0'), std::string::npos);
}

}  // namespace
}  // namespace cairn::format::testing
