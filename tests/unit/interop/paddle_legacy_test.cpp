// PaddlePaddle's legacy pickles: described like the unified form of the same state, and refused if they do not match.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "interop/paddle/legacy_files.hpp"
#include "interop/paddle/legacy_pickles.hpp"
#include "pickles.hpp"
#include "test_directory.hpp"

namespace cairn::interop::test {
namespace {

using pickle::Entries;
using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr const char* kNames = "StructuredToParameterName@@";
constexpr const char* kConfig = R"({"model_type": "llama", "vocab_size": 8, "num_attention_heads": 4, )"
                                R"("num_key_value_heads": 2, "tensor_parallel_degree": 2})";

/// One rank's part of a parameter. Its bytes count up from `first`.
struct Weight {
  std::string name;
  std::string static_name;
  Shape shape;
  unsigned first = 0;
  std::string type = "u2";
};

std::string weights(const std::vector<Weight>& weights, Entries more = {}) {
  Entries entries;
  Entries names;
  for (const Weight& weight : weights) {
    entries.emplace_back(weight.name, pickle::counting(weight.type, weight.shape, weight.first));
    names.emplace_back(weight.name, pickle::text(weight.static_name));
  }
  entries.insert(entries.end(), more.begin(), more.end());
  entries.emplace_back(kNames, pickle::dict(names));
  return pickle::file(pickle::dict(entries));
}

/// An optimizer file. For each weight it has both moments, an accumulator and, unless the weight is F32, the master.
std::string state(const std::vector<Weight>& weights, Entries more = {}) {
  Entries entries;
  Entries masters;
  for (const Weight& weight : weights) {
    const bool has_master = weight.type != "f4";
    const std::string name = weight.static_name + (has_master ? "_fp32_master_0" : "");
    for (const char* moment : {"_moment1_0", "_moment2_0"}) {
      entries.emplace_back(name + moment,
                           pickle::tensor(name + moment, pickle::counting("f4", weight.shape, weight.first)));
    }
    entries.emplace_back(name + "_beta1_pow_acc_0", pickle::counting("f4", {1}, 9));
    if (has_master) {
      masters.emplace_back(weight.static_name,
                           pickle::tensor(name, pickle::counting("f4", weight.shape, weight.first)));
    }
  }
  if (!masters.empty()) entries.emplace_back("master_weights", pickle::dict(masters));
  entries.emplace_back("LR_Scheduler", pickle::dict({{"last_epoch", pickle::integer(3)}}));
  entries.insert(entries.end(), more.begin(), more.end());
  return pickle::file(pickle::dict(entries));
}

/// The slices of a small Llama on tensor-parallel rank `rank` of 2.
std::vector<Weight> slices(unsigned rank) {
  const unsigned first = 1 + 100 * rank;
  return {{"llama.embed_tokens.weight", "embedding_1.w_0", {4, 6}, first},
          {"llama.layers.0.self_attn.q_proj.weight", "linear_1.w_0", {6, 3}, first},
          {"llama.layers.0.self_attn.o_proj.weight", "linear_2.w_0", {3, 6}, first},
          {"llama.layers.0.mlp.gate_up_fused_proj.weight", "linear_3.w_0", {6, 4}, first},
          {"llama.norm.weight", "create_parameter_1.w_0", {6}, 1}};
}

std::string rank_name(const std::string& set, unsigned rank, const std::string& suffix) {
  return set + ".tp0" + std::to_string(rank) + suffix;
}

TestDirectory tensor_parallel(const std::string& config = kConfig) {
  TestDirectory d;
  d.json("config.json", config);
  for (const unsigned rank : {0U, 1U}) {
    d.content(rank_name("model_state", rank, ".pdparams"), weights(slices(rank)));
    d.content(rank_name("optimizer", rank, ".pdopt"), state(slices(rank)));
  }
  return d;
}

/// Two ranks with different weights, and no state.
TestDirectory only_weights(const std::vector<Weight>& first, const std::vector<Weight>& second,
                           const std::string& config = kConfig) {
  TestDirectory d;
  d.json("config.json", config);
  d.content("model_state.tp00.pdparams", weights(first)).content("model_state.tp01.pdparams", weights(second));
  return d;
}

TestDirectory one_process(const std::vector<Weight>& all, Entries more_state = {}) {
  TestDirectory d;
  d.content("model_state.pdparams", weights(all)).content("optimizer.pdopt", state(all, std::move(more_state)));
  return d;
}

std::vector<Box> boxes_of(const format::StoredTensor& tensor) {
  std::vector<Box> out;
  for (const auto& stored : tensor.boxes) out.push_back(stored.box);
  return out;
}

/// The value of the byte at which a box begins in its file.
unsigned first_byte(const TestDirectory& d, const Recognised& out, const format::StoredBox& box) {
  std::byte value{};
  d.directory.access.open(out.files.at(box.file).name).read(std::span(&value, 1), box.offset_bytes);
  return std::to_integer<unsigned>(value);
}

TEST(PaddleLegacy, NamesSayWhichRank) {
  const auto name = parse_legacy_name("optimizer.tp01_pp10_shard123.pdopt");
  ASSERT_TRUE(name);
  EXPECT_THAT(name->rank.ranks, ElementsAre(1U, 10U, 123U, std::nullopt));
  EXPECT_EQ(parse_legacy_name("lora_model_state.pp00.pdparams")->section, "adapter");
  const auto piece = parse_legacy_name("model_state.tp01-00002-of-00003.pdparams");
  ASSERT_TRUE(piece);
  EXPECT_EQ(piece->rank.set, "model_state");
  EXPECT_EQ(piece->rank.piece, 2U);
  EXPECT_EQ(piece->pieces, 3U);
  for (const char* other : {"scheduler.pdparams", "model_state.pdopt", "model_state_2.pdparams", "optimizer.tp0.pdopt",
                            "model_state-00004-of-00003.pdparams", "model_state.tp00_tp01.pdparams", ".pdparams"}) {
    EXPECT_FALSE(parse_legacy_name(other)) << other;
  }
}

TEST(PaddleLegacy, KeysOfStatesAreTakenApart) {
  const StaticNames names = {{"linear_1.w_0", {"a"}}, {"linear_1.w_0_x", {"b"}}};
  EXPECT_EQ(split_state_key("linear_1.w_0_fp32_master_0_moment1_0", names)->second, "moment1_0");
  EXPECT_EQ(split_state_key("linear_1.w_0_beta1_pow_acc_0", names)->first, "linear_1.w_0");
  EXPECT_EQ(split_state_key("linear_1.w_0_x_velocity_0", names)->first, "linear_1.w_0_x");
  EXPECT_FALSE(split_state_key("linear_10.w_0_moment1_0", names));
  EXPECT_FALSE(split_state_key("_moment1_0", names));
}

TEST(PaddleLegacy, IsDescribedAsTheUnifiedForm) {
  const TestDirectory d = tensor_parallel();
  const Recognised out = recognise(d.directory);
  EXPECT_EQ(out.about.dialect, "PaddlePaddle");
  EXPECT_EQ(out.about.parallel, "tp=2");
  EXPECT_THAT(out.about.left, testing::IsEmpty());
  EXPECT_EQ(sections_of(out),
            (std::map<std::string, std::size_t>{{"master_weights", 5}, {"model", 5}, {"optimizer", 15}}));
  const auto rows = tensor_of(out, "model", "llama.embed_tokens.weight");
  EXPECT_EQ(rows.dtype, DType::kBF16);
  EXPECT_THAT(boxes_of(rows), ElementsAre(Box{{0, 0}, {4, 6}}, Box{{4, 0}, {4, 6}}));
  EXPECT_EQ(first_byte(d, out, rows.boxes[1]), 101U);
  const auto columns = tensor_of(out, "optimizer", "llama.layers.0.self_attn.q_proj.weight/moment2_0");
  EXPECT_THAT(boxes_of(columns), ElementsAre(Box{{0, 0}, {6, 3}}, Box{{0, 3}, {6, 3}}));
  EXPECT_EQ(first_byte(d, out, columns.boxes[0]), 1U);
  EXPECT_EQ(tensor_of(out, "master_weights", "llama.layers.0.self_attn.o_proj.weight").shape, (Shape{6, 6}));
  const auto fused = tensor_of(out, "model", "llama.layers.0.mlp.gate_up_fused_proj.weight");
  EXPECT_THAT(boxes_of(fused),
              ElementsAre(Box{{0, 0}, {6, 2}}, Box{{0, 4}, {6, 2}}, Box{{0, 2}, {6, 2}}, Box{{0, 6}, {6, 2}}));
  EXPECT_EQ(tensor_of(out, "model", "llama.norm.weight").boxes.size(), 1U);
  EXPECT_EQ(tensor_of(out, "optimizer", "llama.norm.weight/beta1_pow_acc_0").shape, Shape{1});
  EXPECT_THAT(out.carried, ElementsAre("config.json"));
  EXPECT_FALSE(warns_of(out, {"should have copies"}));
}

TEST(PaddleLegacy, EmbeddingsAndKeysMayBeWhole) {
  const std::string odd = R"({"model_type": "qwen2", "vocab_size": 9, "num_key_value_heads": 1})";
  const std::vector<Weight> same = {{"qwen2.embed_tokens.weight", "a", {9, 6}},
                                    {"qwen2.layers.0.self_attn.k_proj.bias", "b", {3}},
                                    {"lm_head.weight", "c", {6, 9}}};
  std::vector<Weight> drifted = same;
  drifted[1].first = 7;
  const Recognised out = recognise(only_weights(same, drifted, odd).directory);
  for (const Weight& weight : same) EXPECT_EQ(tensor_of(out, "model", weight.name).shape, weight.shape);
  EXPECT_TRUE(warns_of(out, {"1 tensor differs", "k_proj.bias", "first rank"}));
}

TEST(PaddleLegacy, TiedWeightsHaveOneStaticName) {
  const std::vector<Weight> first = {{"llama.embed_tokens.weight", "embedding_1.w_0", {4, 6}, 1},
                                     {"lm_head.weight", "embedding_1.w_0", {4, 6}, 1}};
  std::vector<Weight> second = first;
  for (Weight& weight : second) weight.first = 100;
  TestDirectory d = only_weights(first, second);
  for (const unsigned rank : {0U, 1U}) {
    d.content(rank_name("optimizer", rank, ".pdopt"), state({rank == 0 ? first[0] : second[0]}));
  }
  const Recognised out = recognise(d.directory);
  EXPECT_EQ(tensor_of(out, "model", "lm_head.weight").shape, (Shape{8, 6}));
  EXPECT_EQ(tensor_of(out, "optimizer", "lm_head.weight/moment1_0").boxes[1].offset_bytes,
            tensor_of(out, "optimizer", "llama.embed_tokens.weight/moment1_0").boxes[1].offset_bytes);
}

TEST(PaddleLegacy, StagesHaveStaticNamesOfTheirOwn) {
  TestDirectory d;
  for (const std::string stage : {"0", "1"}) {
    const std::vector<Weight> all = {{"llama.layers." + stage + ".mlp.up_proj.weight", "linear_1.w_0", {2, 3}}};
    d.content("model_state.pp0" + stage + ".pdparams", weights(all));
    d.content("optimizer.pp0" + stage + ".pdopt", state(all));
  }
  const Recognised out = recognise(d.directory);
  EXPECT_EQ(out.about.parallel, "pp=2");
  const auto file_of = [&](const std::string& stage) {
    const auto tensor = tensor_of(out, "optimizer", "llama.layers." + stage + ".mlp.up_proj.weight/moment1_0");
    return out.files.at(tensor.boxes.at(0).file).name;
  };
  EXPECT_EQ(file_of("0"), "optimizer.pp00.pdopt");
  EXPECT_EQ(file_of("1"), "optimizer.pp01.pdopt");
}

TEST(PaddleLegacy, F32WeightsAreTheirOwnMasters) {
  const Recognised out = recognise(one_process({{"a.up_proj.weight", "linear_1.w_0", {2, 3}},
                                                {"a.norm.weight", "create_parameter_1.w_0", {3}, 5, "f4"}})
                                       .directory);
  const auto master = tensor_of(out, "master_weights", "a.norm.weight");
  EXPECT_EQ(master.boxes[0].offset_bytes, tensor_of(out, "model", "a.norm.weight").boxes[0].offset_bytes);
  EXPECT_EQ(tensor_of(out, "optimizer", "a.norm.weight/moment1_0").dtype, DType::kF32);
  const Recognised f32 = recognise(one_process({{"a.norm.weight", "create_parameter_1.w_0", {3}, 5, "f4"}}).directory);
  EXPECT_FALSE(f32.sections.contains("master_weights"));
}

TEST(PaddleLegacy, FlatRangesOfColumns) {
  const std::vector<Weight> first = {{"llama.layers.0.self_attn.q_proj.weight", "linear_1.w_0", {8, 3}, 1}};
  const std::vector<Weight> second = {{"llama.layers.0.self_attn.q_proj.weight", "linear_1.w_0", {8, 3}, 99}};
  TestDirectory d = only_weights(first, second);
  const std::vector<Weight> range = {{"", "linear_1.w_0", {128}, 0}};
  const std::vector<Weight> short_range = {{"", "linear_1.w_0", {5}, 0}};
  const std::vector<Weight> long_range = {{"", "linear_1.w_0", {251}, 0}};
  for (const std::string rank : {"0", "1"}) {
    d.content("optimizer.tp0" + rank + "_shard00.pdopt", state(rank == "0" ? short_range : range));
    d.content("optimizer.tp0" + rank + "_shard01.pdopt", state(rank == "0" ? long_range : range));
  }
  const Recognised out = recognise(d.directory);
  const auto tensor = tensor_of(out, "optimizer", "llama.layers.0.self_attn.q_proj.weight/moment1_0");
  EXPECT_EQ(tensor.shape, (Shape{8, 6}));
  EXPECT_THAT(boxes_of(tensor), ElementsAre(Box{{0, 0}, {1, 3}}, Box{{1, 0}, {1, 2}}, Box{{1, 2}, {1, 1}},
                                            Box{{2, 0}, {6, 3}}, Box{{0, 3}, {8, 3}}));
}

TEST(PaddleLegacy, WeightsMayBeInNumberedPieces) {
  TestDirectory d;
  d.content("model_state-00001-of-00002.pdparams", weights({{"a.up_proj.weight", "linear_1.w_0", {2, 3}}}));
  d.content("model_state-00002-of-00002.pdparams", weights({{"a.norm.weight", "linear_2.w_0", {3}}}));
  const std::map<std::string, std::string> map = {{"a.up_proj.weight", "model_state-00001-of-00002.pdparams"},
                                                  {"a.norm.weight", "model_state-00002-of-00002.pdparams"}};
  d.index("model_state.pdparams.index.json", map, 18);
  EXPECT_EQ(sections_of(recognise(d.directory)).at("model"), 2U);
  TestDirectory listed = d;
  auto more = map;
  more["b"] = "model_state-00001-of-00002.pdparams";
  listed.index("model_state.pdparams.index.json", more, 18);
  EXPECT_THAT(failure_of(listed.directory), AllOf(HasSubstr("index.json"), HasSubstr("'b'"), HasSubstr("it is not")));
  TestDirectory unlisted = d;
  more = map;
  more.erase("a.norm.weight");
  unlisted.index("model_state.pdparams.index.json", more, 18);
  EXPECT_THAT(failure_of(unlisted.directory),
              AllOf(HasSubstr("model_state-00002-of-00002.pdparams: holds tensor 'a.norm.weight'")));
  TestDirectory missing = d;
  missing.directory.others.erase("model_state-00001-of-00002.pdparams");
  EXPECT_THAT(failure_of(missing.directory, ErrorKind::kNotFound),
              HasSubstr("model_state-00001-of-00002.pdparams: the file is missing"));
  TestDirectory unpadded;
  unpadded.content("model_state-1-of-12.pdparams", weights({{"a.up_proj.weight", "linear_1.w_0", {2, 3}}}));
  EXPECT_THAT(
      failure_of(unpadded.directory, ErrorKind::kNotFound),
      AllOf(HasSubstr("model_state-2-of-12.pdparams: the file is missing"), HasSubstr("model_state-12-of-12.pd")));
  TestDirectory mixed = d;
  mixed.content("model_state-00001-of-00003.pdparams", weights({}));
  EXPECT_THAT(failure_of(mixed.directory), HasSubstr("as their numbers say"));
}

// ---- next to safetensors files

TEST(PaddleLegacy, AUnifiedCheckpointWins) {
  TestDirectory d = tensor_parallel();
  d.file("model-00001-of-00001.safetensors", {{"w", DType::kU16, {2}}}, kNumpy);
  d.index("model.safetensors.index.json", {{"w", "model-00001-of-00001.safetensors"}}, 4);
  const Recognised out = recognise(d.directory);
  EXPECT_EQ(sections_of(out), (std::map<std::string, std::size_t>{{"model", 1}}));
  EXPECT_TRUE(warns_of(out, {"4 files are of a save with unified_checkpoint off, and ignored", "model_state.tp00"}));
}

TEST(PaddleLegacy, WithoutAnIndexPicklesWin) {
  TestDirectory d = one_process({{"a.up_proj.weight", "linear_1.w_0", {2, 3}}});
  d.file("model.safetensors", {{"w", DType::kF32, {2}}});
  const Recognised out = recognise(d.directory);
  EXPECT_EQ(tensor_of(out, "model", "a.up_proj.weight").shape, (Shape{2, 3}));
  EXPECT_TRUE(warns_of(out, {"1 file is ignored", "model.safetensors"}));
  d.directory.others.erase("optimizer.pdopt");  // without optimizer state, the directory has weights in two forms
  EXPECT_EQ(recognise(d.directory).about.dialect, "Hugging Face");
}

TEST(PaddleLegacy, StateThatNothingNamesIsLeft) {
  TestDirectory d;
  d.file("model.safetensors", {{"model.norm.weight", DType::kBF16, {3}}});
  d.content("optimizer.pdopt", state({{"", "linear_1.w_0", {3}}}));
  const Recognised out = recognise(d.directory);
  EXPECT_EQ(out.about.dialect, "PaddlePaddle");
  EXPECT_EQ(sections_of(out), (std::map<std::string, std::size_t>{{"model", 1}}));
  EXPECT_THAT(out.about.left, ElementsAre(AllOf(HasSubstr("optimizer state"), HasSubstr("optimizer.pdopt"))));
}

std::string f32_of(const std::vector<std::uint16_t>& values) {
  std::string out;
  for (const std::uint16_t value : values) {
    out += std::string("\x12\x34") + static_cast<char>(value & 0xFF) + static_cast<char>(value >> 8);  // rounds down
  }
  return out;
}

/// A merged LoRA adapter, and the state of both ranks. `first` is the first element of the first rank's masters.
TestDirectory merged_adapter(std::uint16_t first) {
  const auto bf16 = [](const std::vector<std::uint16_t>& values) {
    std::string out;
    for (const std::uint16_t value : values) out += {static_cast<char>(value & 0xFF), static_cast<char>(value >> 8)};
    return out;
  };
  TestDirectory d;
  d.json("config.json", kConfig);
  d.content("lora_model_state.pdparams",
            pickle::file(pickle::dict(
                {{"llama.layers.0.self_attn.q_proj.lora_A", pickle::array("u2", {2, 1}, bf16({1, 2}))},
                 {"llama.layers.0.self_attn.q_proj.lora_B", pickle::array("u2", {1, 4}, bf16({3, 4, 5, 6}))}})));
  for (const unsigned rank : {0U, 1U}) {
    Entries entries;
    Entries masters;
    const auto add = [&](const std::string& name, const Shape& shape, const std::vector<std::uint16_t>& values) {
      masters.emplace_back(name, pickle::tensor(name + "_fp32_master_0", pickle::array("f4", shape, f32_of(values))));
      entries.emplace_back(name + "_fp32_master_0_moment1_0", pickle::counting("f4", shape, rank));
    };
    add("lora_1.w_1", {2, 1}, {rank == 0 ? first : std::uint16_t{1}, 2});
    add("lora_1.w_2", {1, 2}, rank == 0 ? std::vector<std::uint16_t>{3, 4} : std::vector<std::uint16_t>{5, 6});
    entries.emplace_back("master_weights", pickle::dict(masters));
    d.content(rank_name("optimizer", rank, ".pdopt"), pickle::file(pickle::dict(entries)));
  }
  return d;
}

TEST(PaddleLegacy, MastersTellTheNamesOfAMergedAdapter) {
  const Recognised out = recognise(merged_adapter(1).directory);
  EXPECT_EQ(tensor_of(out, "optimizer", "llama.layers.0.self_attn.q_proj.lora_B/moment1_0").shape, (Shape{1, 4}));
  EXPECT_EQ(tensor_of(out, "master_weights", "llama.layers.0.self_attn.q_proj.lora_A").shape, (Shape{2, 1}));
  const Recognised other = recognise(merged_adapter(9).directory);
  EXPECT_EQ(sections_of(other), (std::map<std::string, std::size_t>{{"adapter", 2}}));
  EXPECT_THAT(other.about.left, ElementsAre(AllOf(HasSubstr("optimizer.tp00.pdopt"), HasSubstr(kNames))));
}

// ---- refused

TEST(PaddleLegacyRefused, FilesThatAreMissing) {
  TestDirectory d = tensor_parallel(R"({"tensor_parallel_degree": 4})");
  EXPECT_THAT(failure_of(d.directory, ErrorKind::kNotFound),
              AllOf(HasSubstr("model_state.tp02.pdparams: the file is missing; so are model_state.tp03.pdparams"),
                    HasSubstr("model_state.tp00.pdparams is here")));
  TestDirectory parts = tensor_parallel();
  parts.directory.others.erase("optimizer.tp01.pdopt");
  parts.directory.parts = {"/run/checkpoint-7", "/b"};
  EXPECT_THAT(
      failure_of(parts.directory, ErrorKind::kNotFound),
      AllOf(HasSubstr("optimizer.tp01.pdopt: the file is missing"), HasSubstr("looked in /run/checkpoint-7 and /b")));
  TestDirectory signals = one_process({{"a.norm.weight", "b", {3}}});
  for (const char* rank : {"0", "1", "2"}) signals.other(std::string("saved_signal_") + rank);
  EXPECT_THAT(failure_of(signals.directory, ErrorKind::kNotFound),
              AllOf(HasSubstr("3 signal files say"), HasSubstr("1 file is here"), HasSubstr("optimizer.pdopt")));
  TestDirectory state_alone;
  state_alone.content("optimizer.pdopt", state({}));
  EXPECT_THAT(failure_of(state_alone.directory, ErrorKind::kNotFound),
              AllOf(HasSubstr("model_state.pdparams: the file is missing"), HasSubstr("optimizer.pdopt")));
  TestDirectory many;
  many.content("model_state.tp1000000_pp1000000.pdparams", weights({}));
  EXPECT_THAT(failure_of(many.directory, ErrorKind::kNotFound), HasSubstr(" and more; each rank wrote one"));
}

TEST(PaddleLegacyRefused, FilesOfTwoSaves) {
  TestDirectory older = tensor_parallel();
  older.content("model_state.tp02.pdparams", weights({}));
  EXPECT_THAT(failure_of(older.directory), AllOf(HasSubstr("model_state.tp02.pdparams"), HasSubstr("another save")));
  TestDirectory axes = one_process({{"a.norm.weight", "b", {3}}});
  axes.directory.others.erase("optimizer.pdopt");
  for (const char* stage : {"0", "1"}) axes.content(std::string("optimizer.pp0") + stage + ".pdopt", state({}));
  EXPECT_THAT(failure_of(axes.directory), AllOf(HasSubstr("optimizer.pp00.pdopt"), HasSubstr("other parallelisms")));
  TestDirectory two = tensor_parallel();
  two.content("model_state.pdparams", weights({}));
  EXPECT_THAT(failure_of(two.directory), HasSubstr("belongs to another save than model_state.pdparams"));
}

TEST(PaddleLegacyRefused, FormsThatAreNotRead) {
  TestDirectory sharded;
  for (const char* rank : {"0", "1"})
    sharded.content(std::string("model_state.shard0") + rank + ".pdparams", weights({}));
  EXPECT_THAT(failure_of(sharded.directory), HasSubstr("save_sharding_stage1_model"));
  TestDirectory formers;
  for (const unsigned rank : {0U, 1U}) {
    formers.file(rank_name("model", rank, ".safetensors"), {{"w", DType::kBF16, {2}}});
    formers.content(rank_name("optimizer", rank, ".pdopt"), state({}));
  }
  EXPECT_THAT(failure_of(formers.directory), AllOf(HasSubstr("model.tp00.safetensors"), HasSubstr("one rank held")));
}

std::string failure_of_weights(const std::string& pickle) {
  return failure_of(TestDirectory().content("model_state.pdparams", pickle).directory);
}

TEST(PaddleLegacyRefused, PicklesThatAreNotWhatTheyShouldBe) {
  const auto with = [](const std::string& value) {
    return failure_of_weights(pickle::file(pickle::dict({{"a.weight", value}})));
  };
  EXPECT_THAT(with(pickle::integer(7)), AllOf(HasSubstr("model_state.pdparams: byte"), HasSubstr("an integer"),
                                              HasSubstr("(tensor 'a.weight')")));
  EXPECT_THAT(with(pickle::counting(">f4", {2}, 1)), AllOf(HasSubstr("big-endian"), HasSubstr("'a.weight'")));
  EXPECT_THAT(with(pickle::array("f4", {2}, "1234567")),
              AllOf(HasSubstr("has 8 bytes, found 7"), HasSubstr("'a.weight'")));
  EXPECT_THAT(with(pickle::object("os", "system", pickle::text("x"))), HasSubstr("an object os.system, not a tensor"));
  EXPECT_THAT(failure_of_weights(pickle::file(pickle::list({pickle::integer(1)}))), HasSubstr("not a dict of tensors"));
  EXPECT_THAT(failure_of_weights(pickle::file(pickle::dict({{"UnpackBigParamInfor@@", pickle::dict({})}}))),
              HasSubstr("tensors in several pieces"));
  const std::string whole = weights({{"a.weight", "b", {8, 8}}});
  EXPECT_THAT(failure_of_weights(whole.substr(0, whole.size() / 2)), HasSubstr("model_state.pdparams: byte"));
  EXPECT_THAT(failure_of_weights("no pickle"), HasSubstr("model_state.pdparams: byte"));
}

TEST(PaddleLegacyRefused, OneArrayForManyTensors) {
  // "q" stores a value in the memo and "h" fetches it: three names of an array that fills most of the file.
  const std::string array = pickle::counting("u2", {64, 64}, 1) + "q\x01";
  const auto twice = pickle::dict({{"a.weight", array}, {"b.weight", "h\x01"}});
  EXPECT_EQ(recognise(TestDirectory().content("model_state.pdparams", pickle::file(twice)).directory).tensors.size(),
            2U);
  EXPECT_THAT(failure_of_weights(
                  pickle::file(pickle::dict({{"a.weight", array}, {"b.weight", "h\x01"}, {"c.weight", "h\x01"}}))),
              AllOf(HasSubstr("'c.weight'"), HasSubstr("stands for many")));
}

TEST(PaddleLegacyRefused, OneParameterOfManyNames) {
  std::vector<Weight> all;
  for (int i = 0; i < 9; ++i) all.push_back({"w" + std::to_string(i), "linear_1.w_0", {2}});
  EXPECT_THAT(failure_of_weights(weights(all)), HasSubstr("more than 8 names of one parameter"));
}

TEST(PaddleLegacyRefused, StateOfNoWeight) {
  const std::vector<Weight> all = {{"a.norm.weight", "b.w_0", {3}}};
  EXPECT_THAT(failure_of(one_process(all, {{"c.w_0_moment1_0", pickle::counting("f4", {3}, 1)}}).directory),
              AllOf(HasSubstr("optimizer.pdopt"), HasSubstr("'c.w_0_moment1_0'"), HasSubstr("belongs to none")));
  TestDirectory lacking = one_process(all);
  lacking.content("optimizer.pdopt", pickle::file(pickle::dict({{"b.w_0_moment1_0", pickle::counting("f4", {4}, 1)}})));
  EXPECT_THAT(failure_of(lacking.directory),
              AllOf(HasSubstr("'a.norm.weight/moment1_0'"), HasSubstr("is the last slice")));
}

TEST(PaddleLegacyRefused, SlicesOfWhichNothingTells) {
  const auto failure = [](const Weight& weight, unsigned second, const std::string& config = kConfig) {
    Weight other = weight;
    other.first = second;
    return failure_of(only_weights({weight}, {other}, config).directory);
  };
  const std::string unknown = R"({"model_type": "new"})";
  EXPECT_THAT(failure({"n.block.mixer.weight", "a", {4, 6}, 1}, 99, unknown),
              AllOf(HasSubstr("model_state.tp00.pdparams: tensor 'n.block.mixer.weight' of shape [4, 6]"),
                    HasSubstr("their bytes differ")));
  EXPECT_THAT(failure({"llama.layers.0.mixer.weight", "a", {4, 6}, 1}, 99), HasSubstr("their bytes differ"));
  EXPECT_THAT(failure({"llama.embed_tokens.weight", "a", {5, 6}, 1}, 99), HasSubstr("vocab_size 8"));
  EXPECT_THAT(failure({"llama.layers.0.mlp.up_proj.weight", "a", {4, 6}, 1}, 1), HasSubstr("all ranks have the same"));
  EXPECT_THAT(failure({"glm.layers.0.query_key_value.weight", "a", {4, 6}, 1}, 99, R"({"model_type": "glm"})"),
              HasSubstr("an order of the model's own"));
  EXPECT_THAT(failure({"llama.layers.0.mlp.gate_up_fused_proj.lora_B", "a", {4, 6}, 1}, 99),
              HasSubstr("another order"));
  TestDirectory uniform;
  for (const unsigned rank : {0U, 1U}) {
    uniform.content(rank_name("model_state", rank, ".pdparams"),
                    pickle::file(pickle::dict({{"n.mixer.bias", pickle::counting("u2", {6}, 0, 0)}})));
  }
  EXPECT_THAT(failure_of(uniform.directory), AllOf(HasSubstr("'n.mixer.bias'"), HasSubstr("one value")));
}

TEST(PaddleLegacyRefused, SlicesThatOneRankLacks) {
  std::vector<Weight> less = slices(1);
  less.erase(less.begin());
  EXPECT_THAT(failure_of(only_weights(slices(0), less).directory),
              AllOf(HasSubstr("'llama.embed_tokens.weight'"), HasSubstr("is not in model_state.tp01.pdparams")));
  std::vector<Weight> other = slices(1);
  other[1].shape = {6, 2};
  EXPECT_THAT(
      failure_of(only_weights(slices(0), other).directory),
      AllOf(HasSubstr("model_state.tp01.pdparams: tensor 'llama.layers.0.self_attn.q_proj.weight' of shape [6, 2]"),
            HasSubstr("[6, 3] in model_state.tp00.pdparams")));
}

}  // namespace
}  // namespace cairn::interop::test
