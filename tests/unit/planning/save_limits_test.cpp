// A save of a state that no load would accept fails with kUsage and a message that names the item and the limit;
// readers use the same limits.
#include "planning/save_limits.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "expect_error.hpp"
#include "format/blocks.hpp"
#include "format/limits.hpp"
#include "format/manifest.hpp"

namespace cairn::test {
namespace {

namespace limits = format::limits;
using planning::check_manifest;

template <class Action>
void refused(Action action, std::initializer_list<std::string_view> parts) {
  expect_error(ErrorKind::kUsage, action, parts);
}

TEST(SaveLimits, SectionsThatLookLikePartsOfASet) {
  for (const char* section : {"model", "a-b_C9", "x-of-00002", "00001-of-00002"}) {
    EXPECT_EQ(planning::section_problem(section), "") << section;
  }
  for (const char* section :
       {"model-00001-of-00002", "model-1-of-2", "x-000001-of-00002", "w-0000000-0000004", "", "a.b", "a/b"}) {
    EXPECT_NE(planning::section_problem(section), "") << section;
  }
  EXPECT_EQ(planning::section_problem(std::string(limits::kSectionBytes, 's')), "");
  EXPECT_NE(planning::section_problem(std::string(limits::kSectionBytes + 1, 's')), "");
}

TEST(SaveLimits, OptionsOfFiles) {
  FileOptions files;
  planning::check_file_options(files);
  for (const std::uint64_t bytes : {std::uint64_t{1}, std::uint64_t{3}, limits::kBlockBytes}) {
    files.block_bytes = bytes;
    planning::check_file_options(files);
  }
  for (const std::uint64_t bytes : {std::uint64_t{0}, limits::kBlockBytes + 1}) {
    files.block_bytes = bytes;
    refused([&] { planning::check_file_options(files); }, {"block_bytes is " + std::to_string(bytes), "1073741824"});
  }
  files = {};
  for (const std::uint64_t bytes : {std::uint64_t{0}, std::uint64_t{4}, std::uint64_t{12}, 2 * limits::kAlignBytes}) {
    files.align_bytes = bytes;
    refused([&] { planning::check_file_options(files); }, {"align_bytes is " + std::to_string(bytes)});
  }
  files = {};
  for (const char* key : {"cairn.coding/w", "cairn.sections", "cairn.later", "DCP_SHARDING_INFO"}) {
    files.metadata = {{key, "{}"}};
    refused([&] { planning::check_file_options(files); }, {key});
  }
  files.metadata = {{"key", "\xff"}};
  refused([&] { planning::check_file_options(files); }, {"'key'", "not UTF-8"});
}

TEST(SaveLimits, NamesOfCarriedFiles) {
  for (const char* name : {"config.json", "scheduler.pdparams", "a b", ".hidden", "saved_signal_", ".weight.done.0",
                           "state.h5", "caf\xc3\xa9", "cairn.json.txt"}) {
    planning::check_carried_name(name);
  }
  planning::check_carried_name(std::string(limits::kFileNameBytes, 'f'));
  const std::vector<std::string> wrong = {"",
                                          ".",
                                          "..",
                                          "a/b",
                                          "a\\b",
                                          "C:x",
                                          "cairn.json",
                                          "Cairn.JSON",
                                          "cairn.blocks",
                                          "model.safetensors",
                                          "x.safetensors_shard_0001",
                                          "x.safetensors.index.json",
                                          "model.safetensors.index.fp16.json",
                                          "optimizer.pdopt",
                                          "model_state.pdparams",
                                          "saved_signal_0",
                                          ".model_weight.done.12",
                                          "\xff",
                                          std::string("a\0b", 3),
                                          std::string(limits::kFileNameBytes + 1, 'f')};
  for (const std::string& name : wrong) {
    refused([&] { planning::check_carried_name(name); }, {"cannot be carried along"});
  }
}

TEST(SaveLimits, NamesThatAConversionTakesOver) {
  const auto check = [](const std::string& section, const std::string& file) {
    plan::Catalog catalog;
    catalog.tensors.push_back({section, "w", DType::kF32, {1}, {}});
    planning::check_taken_names(catalog, std::vector<std::string>{file});
  };
  for (const char* section : {"model", "model.fp16", "a b", "caf\xc3\xa9"}) check(section, "config.json");
  for (const char* section : {"", ".", "..", "a/b", "a\\b", "C:x", "\xff"}) {
    refused([&] { check(section, "config.json"); }, {"section '", "rename"});
  }
  refused([&] { check("model", "a\\b.json"); }, {"'a\\x5cb.json' cannot be carried along"});
  refused([&] { check("model", "\xff.json"); }, {"cannot be carried along", "UTF-8"});
}

TEST(SaveLimits, TheBlockTable) {
  const std::uint64_t blocks = limits::kBlockTableBytes / 4;
  std::vector<plan::DataFile> files = {{"model.safetensors", "model", "", 1000 * (blocks - 30)}};
  planning::check_block_table(files, 1000);
  files[0].size_bytes = 1000 * blocks;
  refused([&] { planning::check_block_table(files, 1000); }, {"blocks of 1000 bytes", "1073741824", "block_bytes"});
  refused([&] { planning::check_block_table(files, 1); }, {"block_bytes"});
  // The computed size equals the size of the written table.
  format::BlockTableSize size(100);
  format::BlockTable table;
  table.block_bytes = 100;
  for (std::uint64_t i = 0; i < 9; ++i) {
    std::vector<std::uint32_t> crcs(i);
    table.files.push_back({std::string(i + 1, 'n'), i * 100, crcs});
    size.add(i + 1, i * 100);
    EXPECT_EQ(size.bytes(), format::encode_blocks(table).size());
  }
}

TEST(SaveLimits, Indexes) {
  planning::check_index("model.safetensors.index.json", limits::kIndexBytes);
  refused([] { planning::check_index("model.safetensors.index.json", limits::kIndexBytes + 1); },
          {"model.safetensors.index.json would have 268435457 bytes", "268435456"});
}

TEST(SaveLimits, TextsOfAManifest) {
  const auto with = [](auto change) {
    format::Manifest manifest;
    manifest.tool = "t";
    manifest.block_bytes = 1;
    change(manifest);
    check_manifest(manifest, {}, std::vector<std::string>{"config.json"});
  };
  with([](format::Manifest&) {});
  with([](format::Manifest& manifest) { manifest.run_id = std::string(limits::kRunIdBytes, 'r'); });
  refused([&] { with([](auto& manifest) { manifest.run_id = std::string(limits::kRunIdBytes + 1, 'r'); }); },
          {"run_id has 1025 bytes"});
  refused([&] { with([](auto& manifest) { manifest.run_id = "\xff"; }); }, {"Options::run_id", "not UTF-8"});
  refused([&] { with([](auto& manifest) { manifest.layout = "\xff"; }); }, {"Extras::layout"});
  refused([&] { with([](auto& manifest) { manifest.user_metadata["\xff"] = ""; }); }, {"Extras::metadata: key"});
  refused([&] { with([](auto& manifest) { manifest.user_metadata["key"] = "\xff"; }); }, {"the value of 'key'"});
}

TEST(SaveLimits, TheSizeOfAManifest) {
  format::Manifest manifest;
  manifest.tool = "t";
  manifest.block_bytes = 1;
  manifest.user_metadata["key"] = std::string(limits::kManifestBytes / 6 + 1, '\x01');  // six bytes each as JSON
  refused([&] { check_manifest(std::move(manifest), {}, {}); },
          {"cairn.json would have", "268435456", "Extras::metadata has 447", "carry_texts"});
}

}  // namespace
}  // namespace cairn::test
