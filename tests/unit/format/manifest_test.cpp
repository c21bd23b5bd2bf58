// cairn.json: a golden file written without Cairn, every rule of parse_manifest, keys of other versions kept.
#include "format/manifest.hpp"

#include <fmt/core.h>

#include "helpers.hpp"
#include "nlohmann/json.hpp"
#include "signed_manifest.hpp"

namespace cairn::format::testing {
namespace {

using nlohmann::json;

Manifest golden_manifest() {
  Manifest manifest;
  manifest.tool = "cairn 0.1.0";
  manifest.step = 1000;
  manifest.has_step = true;
  manifest.run_id = "7b-\u00e9";
  manifest.parent = "checkpoint-900";
  manifest.epoch = 3;
  manifest.counter = 2;
  manifest.lineage = {{1, 500}, {2, 900, 4}};
  manifest.layout = "tp=4,pp=2,dp=2";
  manifest.ranks = 16;
  manifest.rank_blobs = 16;
  manifest.form = "hf";
  manifest.block_bytes = 256;
  manifest.blocks_crc32c = 0x046eb416;
  manifest.data_files = {{"model-00001-of-00002.safetensors", "model", 1000, 0xd7f3a66f},
                         {"model-00002-of-00002.safetensors", "model", 1024, 0x0fd72929},
                         {"optimizer.safetensors", "optimizer", 777, 0x7c04b7e6},
                         {"poids-\u00e9.safetensors", "poids", 0, 0}};
  manifest.carried_files = {{"config.json", "", 20, 0x53bc8238}, {"rng/rank-0.bin", "", 33, 0x4d4c5016}};
  manifest.user_metadata = {{"note", "\"quoted\" \u4e2d"}};
  manifest.quantisation = {{"optimizer", "int8"}};
  manifest.extra["some_later_key"]["kept"] = {1, -2, 0.5, nullptr, true};
  return manifest;
}

/// The smallest manifest that signed_manifest() makes valid, for changing one key at a time.
json smallest() {
  return json::parse(R"({"format":"cairn-checkpoint","format_version":2,"tool":"t","block_bytes":4096,
    "blocks_crc32c":"00000000","data_files":[{"name":"a","section":"model","size_bytes":1,"crc32c":"0000000a"}],
    "carried_files":[],"manifest_crc32c":"00000000"})");
}

void expect_refused(const std::string& text, std::string_view part) {
  expect_error(ErrorKind::kFormat, [&] { parse_manifest(text, "c/cairn.json"); }, {"c/cairn.json: ", part});
}

TEST(Manifest, EncodesTheGoldenFile) {
  EXPECT_EQ(encode_manifest(golden_manifest()), read_file(test_data("golden/cairn.json")));
}

TEST(Manifest, ParsesTheGoldenFile) {
  const std::string text = read_file(test_data("golden/cairn.json"));
  const Manifest manifest = parse_manifest(text, "p");
  const Manifest expected = golden_manifest();
  EXPECT_EQ(manifest.tool, expected.tool);
  EXPECT_TRUE(manifest.has_step);
  EXPECT_EQ(manifest.step, 1000u);
  EXPECT_EQ(manifest.run_id, expected.run_id);
  EXPECT_EQ(manifest.parent, expected.parent);
  EXPECT_EQ(manifest.epoch, 3u);
  EXPECT_EQ(manifest.counter, 2u);
  EXPECT_EQ(manifest.lineage, expected.lineage);
  EXPECT_EQ(manifest.layout, expected.layout);
  EXPECT_EQ(manifest.ranks, 16u);
  EXPECT_EQ(manifest.rank_blobs, 16u);
  EXPECT_EQ(manifest.form, "hf");
  EXPECT_EQ(manifest.block_bytes, 256u);
  EXPECT_EQ(manifest.blocks_crc32c, expected.blocks_crc32c);
  ASSERT_EQ(manifest.data_files.size(), 4u);
  EXPECT_EQ(manifest.data_files[1].name, "model-00002-of-00002.safetensors");
  EXPECT_EQ(manifest.data_files[1].section, "model");
  EXPECT_EQ(manifest.data_files[1].size_bytes, 1024u);
  EXPECT_EQ(manifest.data_files[1].crc32c, 0x0fd72929u);
  ASSERT_EQ(manifest.carried_files.size(), 2u);
  EXPECT_EQ(manifest.carried_files[1].name, "rng/rank-0.bin");
  EXPECT_EQ(manifest.user_metadata, expected.user_metadata);
  EXPECT_EQ(manifest.quantisation, expected.quantisation);
  EXPECT_EQ(manifest.extra, expected.extra);
  EXPECT_EQ(encode_manifest(manifest), text);
}

TEST(Manifest, HasMetrics) {
  const std::string text = read_file(test_data("golden/metrics.json"));
  const std::map<std::string, double> metrics = {
      {"loss", 2.3456}, {"perplexit\u00e9", 1e-05}, {"tokens", 3e+20}, {"zero", -0.0}};
  Manifest manifest = golden_manifest();
  manifest.metrics = metrics;
  EXPECT_EQ(encode_manifest(manifest), text);
  EXPECT_EQ(parse_manifest(text, "p").metrics, metrics);
  json whole = smallest();
  whole["metrics"] = {{"a", 3}, {"b", -4}, {"c", 0.25}};  // as other writers put them
  const std::map<std::string, double> numbers = {{"a", 3}, {"b", -4}, {"c", 0.25}};
  EXPECT_EQ(parse_manifest(test::signed_manifest(whole), "p").metrics, numbers);
}

TEST(Manifest, NamesThePartOfAState) {
  const std::string text = read_file(test_data("golden/part.json"));
  Manifest manifest = golden_manifest();
  manifest.part = {{{{"adapter"}, {}}, {{"model", "poids"}, {"*.lora_\u00e9.*"}}},
                   {"optimizer"},
                   BaseCheckpoint{900, "", "run 7b-\u00e9"}};
  EXPECT_EQ(encode_manifest(manifest), text);
  const Manifest back = parse_manifest(text, "p");
  ASSERT_TRUE(back.part);
  EXPECT_EQ(encode_manifest(back), text);
  EXPECT_EQ(words_of(*back.part),
            "sections adapter, or names *.lora_\u00e9.* of sections model, poids without section optimizer; "
            "base: step 900 (run 7b-\u00e9)");
  EXPECT_EQ(words_of({{}, {"optimizer"}}), "all without section optimizer");
  EXPECT_EQ(words_of({{{{}, {"a*"}}}, {}, BaseCheckpoint{{}, "/models/8b", ""}}), "names a*; base: '/models/8b'");

  const auto refused = [](const json& part, const json& base, std::string_view says) {
    json changed = smallest();
    changed["kind"] = "part";
    changed["part"] = part;
    if (!base.is_null()) changed["base"] = base;
    expect_refused(test::signed_manifest(changed), says);
  };
  refused(json::object(), nullptr, "names no tensors");
  refused({{"only", "adapter"}}, nullptr, "part.only");
  refused({{"only", json::array({json::array()})}}, nullptr, "part.only[0]");
  refused({{"only", json::array({{{"section", json::array()}}})}}, nullptr, "section");
  refused({{"without", json::array({7})}}, nullptr, "part.without[0]");
  refused({{"without", json::array({"optimizer"})}, {"later", 1}}, nullptr, "later");
  refused({{"without", json::array({"optimizer"})}}, "checkpoint-900", "base");
  refused({{"without", json::array({"optimizer"})}}, {{"step", "900"}}, "base.step");
}

TEST(Manifest, LeavesOutWhatIsEmpty) {
  Manifest manifest;
  manifest.tool = "t";
  manifest.block_bytes = 1;
  const Manifest back = parse_manifest(encode_manifest(manifest), "p");
  EXPECT_FALSE(back.has_step);
  EXPECT_TRUE(back.extra.empty());
  EXPECT_TRUE(back.quantisation.is_object());
  EXPECT_EQ(json::parse(encode_manifest(manifest)).size(), 9u);
  manifest.has_step = true;  // step 0 is a step
  EXPECT_TRUE(parse_manifest(encode_manifest(manifest), "p").has_step);
}

TEST(Manifest, RefusesMissingAndMistypedKeys) {
  EXPECT_EQ(parse_manifest(test::signed_manifest(smallest()), "p").data_files.size(), 1u);
  for (const char* key : {"format", "format_version", "tool", "block_bytes", "blocks_crc32c", "data_files",
                          "carried_files", "manifest_crc32c"}) {
    json changed = smallest();
    changed.erase(key);
    expect_refused(changed.dump(), fmt::format("the key '{}' is missing", key));
  }
  const json wrong = {{"format", 1},
                      {"format_version", "1"},
                      {"tool", nullptr},
                      {"block_bytes", -1},
                      {"data_files", json::object()},
                      {"carried_files", "x"},
                      {"step", 1.5},
                      {"run_id", 7},
                      {"parent", true},
                      {"layout", json::array()},
                      {"ranks", "4"},
                      {"rank_blobs", "4"},
                      {"form", 4},
                      {"epoch", "4"},
                      {"counter", -1},
                      {"lineage", json::object()},
                      {"kind", 1},
                      {"quantisation", json::array()},
                      {"user_metadata", "x"},
                      {"metrics", 2.5},
                      {"blocks_crc32c", 5}};
  for (const auto& [key, value] : wrong.items()) {
    json changed = smallest();
    changed[key] = value;
    expect_refused(changed.dump(), fmt::format(": {}: must be", key));
  }
  for (const char* key : {"name", "size_bytes", "crc32c"}) {
    json changed = smallest();
    changed["data_files"][0].erase(key);
    expect_refused(changed.dump(), fmt::format("data_files[0]: the key '{}' is missing", key));
  }
  json changed = smallest();
  changed["user_metadata"]["k"] = 3;
  expect_refused(changed.dump(), "user_metadata.k: must be a string");
  changed = smallest();
  changed["metrics"]["loss"] = "2.5";
  expect_refused(changed.dump(), "metrics.loss: must be a number");
  changed = smallest();
  changed["data_files"].push_back(3);
  expect_refused(changed.dump(), "data_files[1]: must be an object");
}

TEST(Manifest, RefusesBadValues) {
  const auto refused = [](const char* key, const json& value, std::string_view part) {
    json changed = smallest();
    changed[key] = value;
    expect_refused(changed.dump(), part);
  };
  refused("format", "other", "this is not a manifest");
  refused("format_version", 3, "format version 3, this build of Cairn reads up to 2");
  refused("format_version", 18446744073709551615ULL, "use a newer Cairn");
  for (const int version : {0, 1})
    refused("format_version", version, fmt::format("version {} does not exist", version));
  refused("block_bytes", 0, "is 0");
  for (const char* crc :
       {"", "1234567", "123456789", "ABCDEF01", "0x123456", "-1234567", "+1234567", " 1234567", "1234567g"}) {
    refused("blocks_crc32c", crc, "8 lower-case hexadecimal digits");
  }
  refused("parent", "../other", "'.' or '..'");
  for (const char* kind : {"adapter", "later", ""})
    refused("kind", kind, "reads 'whole' and 'part' only; use a newer Cairn");
  refused("kind", "part", "the key 'part' is missing");
  json file = smallest()["data_files"][0];
  refused("carried_files", json::array({file}), "the file 'a' is listed twice");
  file["name"] = "../../etc/passwd";
  refused("data_files", json::array({file}), "data_files[0]: file name '../../etc/passwd'");
}

TEST(Manifest, EveryFlippedBitIsFound) {
  const std::string golden = read_file(test_data("golden/cairn.json"));
  std::size_t by_checksum = 0;
  for (std::size_t bit = 0; bit < golden.size() * 8; ++bit) {
    std::string damaged = golden;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << bit % 8));
    try {
      (void)parse_manifest(damaged, "p");
      ADD_FAILURE() << "bit " << bit << " was believed";
    } catch (const Error& error) {
      by_checksum += error.kind() == ErrorKind::kIntegrity;
      EXPECT_TRUE(error.kind() == ErrorKind::kIntegrity || error.kind() == ErrorKind::kFormat) << error.what();
    }
  }
  EXPECT_GT(by_checksum, golden.size());
}

TEST(Manifest, NeedsItsChecksumInItsPlace) { expect_refused(smallest().dump(), "rewritten by another program"); }

TEST(Manifest, SaysFirstThatAVersionIsNewer) {
  expect_refused(R"({"format":"cairn-checkpoint","format_version":9})", "use a newer Cairn");
}

TEST(Manifest, RefusesTextThatIsNoStrictJson) {
  expect_refused("", "not valid JSON");
  expect_refused("[]", "must be an object");
  expect_refused(R"({"format":"a","format":"b"})", "'format' appears twice");
  expect_refused(R"({"x":{"y":[{"z":1,"\u007a":2}]}})", "'z' appears twice");
  const std::string golden = read_file(test_data("golden/cairn.json"));
  for (std::size_t cut = 0; cut + 2 < golden.size(); cut += 7) expect_refused(golden.substr(0, cut), "not valid JSON");
}

TEST(Manifest, RefusesToEncodeWhatItCouldNotRead) {
  Manifest manifest = golden_manifest();
  manifest.extra["step"] = 1;
  expect_error(ErrorKind::kInternal, [&] { encode_manifest(manifest); }, {"'step'"});
  manifest.extra = base::Json::array();
  expect_error(ErrorKind::kInternal, [&] { encode_manifest(manifest); }, {"not an object"});
  manifest = golden_manifest();
  manifest.user_metadata["bad"] = "\xff";
  expect_error(ErrorKind::kUsage, [&] { encode_manifest(manifest); }, {"not UTF-8"});
}

}  // namespace
}  // namespace cairn::format::testing
