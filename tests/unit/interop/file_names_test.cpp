// The facts in file names, pattern by pattern, and names that only look like a pattern.
#include "interop/file_names.hpp"
#include "interop/dcp/dcp.hpp"
#include "interop/paddle/rank_files.hpp"

#include <gtest/gtest.h>

namespace cairn::interop {
namespace {

void expect_plain(const std::string& file, const std::string& set) {
  const DataName name = parse_data_name(file);
  EXPECT_EQ(name.set, set) << file;
  EXPECT_FALSE(name.numbered) << file;
}

void expect_numbered(const std::string& file, const std::string& set, std::uint64_t number, std::uint64_t count) {
  const DataName name = parse_data_name(file);
  EXPECT_EQ(name.set, set) << file;
  EXPECT_TRUE(name.numbered) << file;
  EXPECT_EQ(name.number, number) << file;
  EXPECT_EQ(name.count, count) << file;
}

TEST(FileNames, TextsThatAreLookedInto) {
  for (const char* file :
       {"model.safetensors.index.json", "model.safetensors.index.fp16.json", "model_state.pdparams.index.json",
        "lora_model_state.pdparams.index.tp00.json", "cairn.json"}) {
    EXPECT_EQ(most_text_bytes(file), 256U << 20) << file;
  }
  EXPECT_EQ(most_text_bytes("trainer_state.json"), 64U << 20);
  EXPECT_EQ(most_text_bytes("config.json"), 16U << 20);
  for (const char* file : {"tokenizer.json", "generation_config.json", "index.json", "model_state.pdparams",
                           "xconfig.json", "optimizer.pdopt.index.json"}) {
    EXPECT_EQ(most_text_bytes(file), 0U) << file;
  }
}

TEST(FileNames, SetsOfDataFiles) {
  expect_plain("model.safetensors", "model");
  expect_plain("model.fp16.safetensors", "model.fp16");
  expect_plain("consolidated.00.safetensors", "consolidated.00");
  expect_plain("out-of-band.safetensors", "out-of-band");
  expect_numbered("model-1-of-2.safetensors", "model", 1, 2);
  expect_numbered("model-01-of-12.safetensors", "model", 1, 12);
  expect_numbered("model.safetensors-00001-of-00002", "model", 1, 2);
  expect_numbered("model.safetensors-00001-of-00002.safetensors", "model", 1, 2);
  expect_plain("model-00001-of-00002x.safetensors", "model-00001-of-00002x");
  expect_plain("model00001-of-00002.safetensors", "model00001-of-00002");
  expect_plain("model-00001-of-.safetensors", "model-00001-of-");
  expect_plain("-of-.safetensors", "-of-");
  expect_plain(".safetensors", "");
  expect_plain("model-00001-of-9999999999999999999999.safetensors", "model-00001-of-9999999999999999999999");
  expect_numbered("model-00001-of-00002.safetensors", "model", 1, 2);
  expect_numbered("model-123456-of-200000.safetensors", "model", 123456, 200000);
  expect_numbered("model-00000-of-00000.safetensors", "model", 0, 0);
  expect_numbered("model.fp16-00002-of-00002.safetensors", "model.fp16", 2, 2);
  expect_numbered("diffusion_pytorch_model-00001-of-00002.fp16.safetensors", "diffusion_pytorch_model.fp16", 1, 2);
  expect_numbered("shard-00003-model-00001-of-00002.safetensors", "shard-00003-model", 1, 2);
}

TEST(FileNames, DataFiles) {
  for (const char* name : {"model.safetensors", "model-1-of-2.safetensors", "model.safetensors-00001-of-00002",
                           "optimizer.tp00.safetensors_shard_0002"}) {
    EXPECT_TRUE(is_data_name(name)) << name;
  }
  for (const char* name : {"model.safetensors.index.json", "model.safetensors-00001-of-00002.json", "config.json",
                           "model.safetensors-of-", "model.safetensors-1-of-2.lock", "model.bin-00001-of-00002"}) {
    EXPECT_FALSE(is_data_name(name)) << name;
  }
}

TEST(FileNames, OtherFilesOfASet) {
  EXPECT_EQ(with_number("model-00001-of-00012.safetensors", 12, 5), "model-00012-of-00012.safetensors");
  EXPECT_EQ(with_number("model-1-of-12.fp16.safetensors", 12, 1), "model-12-of-12.fp16.safetensors");
  EXPECT_EQ(with_number("model.safetensors-00001-of-00002", 2, 5), "model.safetensors-00002-of-00002");
}

TEST(FileNames, SecondCopies) {
  for (const char* file :
       {"model (1).safetensors", "model(12).safetensors", "model copy.safetensors", "model copy 2.safetensors",
        "model - Copy.safetensors", "model - Copy (2).safetensors", "model (copy).safetensors",
        "model (another copy).safetensors", "model-Copy1.safetensors", "model_copy.safetensors"}) {
    EXPECT_EQ(original_of(file), "model.safetensors") << file;
  }
  EXPECT_EQ(original_of("model-00001-of-00002 (1).safetensors"), "model-00001-of-00002.safetensors");
  for (const char* file : {"model.safetensors", "photocopy.safetensors", "copy.safetensors", " copy.safetensors",
                           "(1).safetensors", "model ().safetensors", "model (fp16).safetensors", "model 1.safetensors",
                           "model-1.safetensors", "model (1).bin", "model (1", ")", ""}) {
    EXPECT_EQ(original_of(file), "") << file;
  }
}

TEST(FileNames, Bystanders) {
  for (const char* file : {".gitattributes", ".gitignore", ".cache", ".DS_Store"})
    EXPECT_TRUE(is_bystander(file)) << file;
  for (const char* file : {".metadata", "cache", "gitattributes", "optimizer.pt", ""})
    EXPECT_FALSE(is_bystander(file)) << file;
}

TEST(FileNames, RanksInNames) {
  for (const char* name : {"model-rank-0-part-0.safetensors", "rank0.safetensors", "tiny_rank_0-1_2.safetensors",
                           "model-TP-000.safetensors", "model_tp1.safetensors", "model.tp00_pp01.safetensors",
                           "mp_rank_00.safetensors", "model0-mp2.safetensors"}) {
    EXPECT_TRUE(names_a_rank(name)) << name;
  }
  for (const char* name : {"model.safetensors", "model-00001-of-00002.safetensors", "rank.safetensors",
                           "frank1.safetensors", "http2.safetensors", "reranker-2.safetensors", "rank_.safetensors"}) {
    EXPECT_FALSE(names_a_rank(name)) << name;
  }
}

TEST(FileNames, SetsOfIndexes) {
  EXPECT_EQ(set_of_index("model.safetensors.index.json"), "model");
  EXPECT_EQ(set_of_index("model.safetensors.index.fp16.json"), "model.fp16");
  EXPECT_EQ(set_of_index("model.fp16.safetensors.index.json"), "model.fp16");
  EXPECT_EQ(set_of_index("pytorch_model.bin.index.json"), std::nullopt);
  EXPECT_EQ(set_of_index("config.json"), std::nullopt);
  EXPECT_EQ(set_of_index("model.safetensors.index."), std::nullopt);
  EXPECT_EQ(set_of_index("model.safetensors.index.json.bak"), std::nullopt);
}

TEST(FileNames, Sections) {
  EXPECT_EQ(known_section("model"), "model");
  EXPECT_EQ(known_section("optimizer"), "optimizer");
  EXPECT_EQ(known_section("master_weights"), "master_weights");
  EXPECT_EQ(known_section("adapter_model"), "adapter");
  EXPECT_EQ(known_section("peft_model"), "adapter");
  EXPECT_EQ(known_section("consolidated"), std::nullopt);
  EXPECT_EQ(known_section("model.fp16"), std::nullopt);
}

TEST(FileNames, Dialects) {
  EXPECT_TRUE(is_dcp_shard_name("shard-00001-model-00001-of-00002.safetensors"));
  EXPECT_FALSE(is_dcp_shard_name("shard-model-00001-of-00002.safetensors"));
  EXPECT_FALSE(is_dcp_shard_name("shard-00001-model.safetensors"));
  EXPECT_FALSE(is_dcp_shard_name("model-00001-of-00002.safetensors"));

  EXPECT_TRUE(parse_rank_name("optimizer.tp00.safetensors"));
  EXPECT_TRUE(parse_rank_name("master_weights.tp00_pp01_shard03.safetensors"));
  EXPECT_TRUE(parse_rank_name("optimizer.moe12.safetensors"));
  EXPECT_FALSE(parse_rank_name("optimizer.safetensors"));
  EXPECT_FALSE(parse_rank_name("optimizer.tp.safetensors"));
  EXPECT_FALSE(parse_rank_name("optimizer.tp00_.safetensors"));
  EXPECT_FALSE(parse_rank_name("optimizer.tp00x.safetensors"));
  EXPECT_FALSE(parse_rank_name("model.tp00.safetensors"));
  EXPECT_FALSE(parse_rank_name("optimizer-00001-of-00002.safetensors"));

  EXPECT_EQ(FileKind::kPart, file_kind("model-0000000-0000004.safetensors"));
  EXPECT_EQ(FileKind::kPart, file_kind("CKP-opt-0000003-0000004.safetensors"));
  EXPECT_EQ(FileKind::kPart, file_kind("model-0000000-0000001.safetensors"));
  EXPECT_EQ(FileKind::kOther, file_kind("model-000000-0000004.safetensors"));
  EXPECT_EQ(FileKind::kOther, file_kind("model.safetensors"));

  EXPECT_TRUE(is_cairn_file("cairn.json"));
  EXPECT_TRUE(is_cairn_file("cairn.blocks"));
  EXPECT_FALSE(is_cairn_file("cairn.blocks.bak"));
}

TEST(FileNames, WhatBelongsToAModel) {
  for (const char* name : {"config.json", "tokenizer.json", "tokenizer.model", "vocab.txt", "merges.txt", "README.md",
                           "LICENSE", "LICENSE-APACHE", "modeling_x.py", "chat_template.jinja", "added_tokens.json"}) {
    EXPECT_TRUE(belongs_to_model(name)) << name;
  }
  for (const char* name :
       {"optimizer.pt", "pytorch_model.bin", "pytorch_model.bin.index.json", "pytorch_model.bin.index.fp16.json",
        "model_state.pdparams.index.tp00.json", "rng_state_0.pth", "x.pkl", "training_args.bin", "scheduler.pt",
        "model.gguf", "model.onnx", "tf_model.h5", ".metadata", ".gitattributes", "state.distcp", "model.pdparams",
        "latest", ".json", "events.out.tfevents"}) {
    EXPECT_FALSE(belongs_to_model(name)) << name;
  }
}

}  // namespace
}  // namespace cairn::interop
