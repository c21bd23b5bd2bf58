// The Hugging Face index, compared with an index written by Python's json; and file names that are safe to join to a
// directory.
#include "format/hf_index.hpp"

#include <fmt/core.h>

#include "helpers.hpp"
#include "nlohmann/json.hpp"

namespace cairn::format::testing {
namespace {

using nlohmann::json;

void expect_refused(const std::string& text, std::string_view part) {
  expect_error(ErrorKind::kFormat, [&] { parse_hf_index(text, "c/model.safetensors.index.json"); },
               {"c/model.safetensors.index.json: ", part});
}

std::string file_of(const HfIndex& index, std::string_view name) {
  const IndexEntry* const tensor = index.find(name);
  return tensor == nullptr ? "" : index.file_of(*tensor);
}

TEST(HfIndex, IsByteEqualToPython) {
  const std::string text = read_file(test_data("golden/model.safetensors.index.json"));
  const HfIndex index = parse_hf_index(text, "p");
  EXPECT_EQ(index.tensors.size(), 16u);
  EXPECT_EQ(file_of(index, "\u4e2d\u6587.\u6743\u91cd"), "model-00003-of-00003.safetensors");
  EXPECT_NE(index.find(std::string("tab\tnew\nline\0\x1b\x7f", 15)), nullptr);
  EXPECT_EQ(index.metadata.at("total_size").whole_number(), 18446744073709551615ULL);
  EXPECT_TRUE(index.extra.empty());
  EXPECT_EQ(encode_hf_index(index.tensors, index.files, {18446744073709551615ULL, 8030261248}), text);
}

TEST(HfIndex, SortsNamesByBytesWhateverTheirOrder) {
  std::vector<std::string> names = {"", "a", std::string("a\0", 2), std::string("a\0b", 3), "abcdefgh", "abcdefghi"};
  for (const char* prefix : {"model.layers.", "model.layers.1", "\u4e2d\u6587", "x\"y\\"}) {
    for (int i = 0; i < 120; ++i) names.push_back(fmt::format("{}{}.experts.{}.weight", prefix, i * 7 % 120, i % 13));
  }
  const std::vector<std::string> files = {"one.safetensors", "two.safetensors"};
  json expected = {{"metadata", {{"total_size", 7}, {"total_parameters", 9}}}, {"weight_map", json::object()}};
  std::vector<IndexEntry> entries;
  for (std::size_t i = 0; i < names.size(); ++i) {
    entries.push_back({names[i], static_cast<std::uint32_t>(i % 2)});
    expected["weight_map"][names[i]] = files[i % 2];
  }
  ASSERT_EQ(expected["weight_map"].size(), names.size());
  EXPECT_EQ(encode_hf_index(entries, files, {7, 9}), expected.dump(2, ' ', true) + "\n");
}

TEST(HfIndex, EncodesWithoutParametersAndWithoutTensors) {
  EXPECT_EQ(
      encode_hf_index({{"a", "m.safetensors"}}, 4, 0),
      "{\n  \"metadata\": {\n    \"total_size\": 4\n  },\n  \"weight_map\": {\n    \"a\": \"m.safetensors\"\n  }\n}\n");
  EXPECT_EQ(encode_hf_index({}, 0, 0), "{\n  \"metadata\": {\n    \"total_size\": 0\n  },\n  \"weight_map\": {}\n}\n");
  expect_error(ErrorKind::kUsage, [] { encode_hf_index({{"\xff", "m"}}, 0, 0); }, {"tensor name", "not UTF-8"});
}

TEST(HfIndex, AcceptsAbsentMetadataAndKeepsOtherKeys) {
  const HfIndex index =
      parse_hf_index(R"({"weight_map":{"t":"sub/m-1.safetensors"},"master_weights":true,"z":{"y":[]}})", "p");
  EXPECT_TRUE(index.metadata.is_object());
  EXPECT_TRUE(index.metadata.empty());
  EXPECT_EQ(file_of(index, "t"), "sub/m-1.safetensors");
  EXPECT_EQ(index.extra.dump(), R"({"master_weights":true,"z":{"y":[]}})");
}

TEST(HfIndex, RefusesWhatBreaksItsRules) {
  expect_refused("", "not valid JSON");
  expect_refused("[]", "must be an object");
  expect_refused("{}", "'weight_map' is missing");
  expect_refused(R"({"weight_map":[]})", "weight_map: must be an object");
  expect_refused(R"({"weight_map":{},"metadata":null})", "metadata: must be an object");
  expect_refused(R"({"weight_map":{"a\nb":3}})", "tensor 'a\\x0ab': its weight_map value must be a file name");
  expect_refused(R"({"weight_map":{"t":"../x"}})", "tensor 't': file name '../x'");
  expect_refused(R"({"weight_map":{"\ud800":"x"}})", "tensor '\\xed\\xa0\\x80': its name or its file's has half");
  expect_refused(R"({"weight_map":{"t":"x\udcff"}})",
                 "tensor 't': its name or its file's has half of a surrogate pair");
  expect_refused("{\"weight_map\":{}}\xff", "not UTF-8");
  expect_refused("\xEF\xBB\xBF{\"weight_map\":{}}", "byte order mark");
  expect_refused(std::string("{\"weight_map\":{}}\0", 18), "NUL");
  expect_refused(R"({"weight_map":{}} x)", "not valid JSON");
}

TEST(HfIndex, IsReadAsPythonReadsIt) {
  const HfIndex twice = parse_hf_index(R"({"weight_map":{"t":"x","a":"z","\u0074":"y"}})", "p");
  ASSERT_EQ(twice.tensors.size(), 2U);
  EXPECT_EQ(file_of(twice, "t"), "y");
  const HfIndex plain = parse_hf_index(R"({"weight_map":{"t":"x","a":"z","t":"y"}})", "p");
  EXPECT_EQ(plain.tensors, twice.tensors);
  EXPECT_EQ(plain.files, twice.files);
  const HfIndex maps = parse_hf_index(R"({"weight_map":{"t":"x"},"metadata":{},"weight_map":{"u":"y"}})", "p");
  ASSERT_EQ(maps.tensors.size(), 1U);
  EXPECT_EQ(file_of(maps, "u"), "y");
  const HfIndex special =
      parse_hf_index(R"({"metadata":{"total_size":1e999},"weight_map":{"t":"x"},"loss":NaN,"name":"\ud800"})", "p");
  EXPECT_EQ(special.metadata.dump({.dialect = base::JsonDialect::kPython}), R"({"total_size":Infinity})");
  EXPECT_EQ(special.extra.dump({.dialect = base::JsonDialect::kPython}), R"({"loss":NaN,"name":"\ud800"})");
}

TEST(HfIndex, LimitsNesting) {
  const auto nested = [](std::size_t arrays) {
    return fmt::format(R"({{"weight_map":{{}},"x":{}{}}})", std::string(arrays, '['), std::string(arrays, ']'));
  };
  EXPECT_EQ(parse_hf_index(nested(126), "p").extra.size(), 1u);
  expect_refused(nested(127), "nested more than 127");
  expect_refused(std::string(1'000'000, '['), "nested more than 127");
}

TEST(HfIndex, ReadsNinetyTwoThousandTensors) {
  std::map<std::string, std::string> map;
  for (int i = 0; i < 92'000; ++i) map.emplace(fmt::format("model.layers.{}.w", i), "model-00001-of-00163.safetensors");
  const HfIndex index = parse_hf_index(encode_hf_index(map, 1, 1), "p");
  ASSERT_EQ(index.tensors.size(), map.size());
  EXPECT_TRUE(
      std::ranges::equal(index.tensors, map, {}, &IndexEntry::name, [](const auto& item) { return item.first; }));
  EXPECT_THAT(index.files, ::testing::ElementsAre("model-00001-of-00163.safetensors"));
}

TEST(CheckRelativePath, AcceptsPlainNames) {
  for (const char* name : {"a", "model-00001-of-00002.safetensors", "sub/dir/a", "..a", "a..", "...", ".hidden", "a b",
                           "\u00e9", "ab:c", "1:x"}) {
    EXPECT_NO_THROW(check_relative_path(name, "index")) << name;
  }
}

TEST(CheckRelativePath, RefusesWhatLeavesTheDirectory) {
  for (const char* name : {"",       "/",     "/etc/passwd", "..",   ".",     "../a",         "a/..",
                           "a/../b", "a/./b", "./a",         "a//b", "a/",    "//host/share", "\\\\host\\share",
                           "a\\b",   "..\\a", "C:",          "c:a",  "C:\\a", "z:/a"}) {
    SCOPED_TRACE(name);
    expect_error(ErrorKind::kFormat, [&] { check_relative_path(name, "c/index.json"); }, {"c/index.json: file name '"});
  }
  expect_error(ErrorKind::kFormat, [] { check_relative_path(std::string_view("a\0b", 3), "i"); }, {"a\\x00b", "NUL"});
}

}  // namespace
}  // namespace cairn::format::testing
