// Every form: without the manifest, its dialect recognises the files of a conversion or a save, and reads back the
// tensors of the form's map. One form is made up (made_up/), with a folder and a line in dialects.cpp like any other:
// it tests maps of every kind.
#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "cairn/error.hpp"
#include "checkpoint/save.hpp"
#include "coded_files.hpp"
#include "conversion/convert.hpp"
#include "environment.hpp"
#include "interop/dialect.hpp"
#include "made_up/made_up.hpp"
#include "opening/open.hpp"
#include "random_map.hpp"
#include "simulated.hpp"
#include "temp_dir.hpp"
#include "test_name.hpp"

namespace cairn::test {
namespace {

namespace fs = std::filesystem;

constexpr const char* kConfig =
    R"({"model_type": "llama", "hidden_size": 30, "intermediate_size": 44, "vocab_size": 61, "num_hidden_layers": 1,
        "num_attention_heads": 2})";

/// File tensors by section.
using State = std::map<std::string, FileTensors>;

/// A model, its master weights and Adam's state.
State llama() {
  FileTensors model;
  model["model.layers.0.mlp.gate_proj.weight"] = counted(DType::kBF16, {44, 30});
  model["model.layers.0.mlp.down_proj.weight"] = counted(DType::kBF16, {30, 44});
  model["model.layers.0.input_layernorm.weight"] = counted(DType::kBF16, {30});
  model["model.embed_tokens.weight"] = counted(DType::kBF16, {61, 30});
  model["lm_head.weight"] = counted(DType::kBF16, {61, 30});
  State state = {{"model", model}, {"master_weights", {}}, {"optimizer", {}}};
  for (const auto& [name, weight] : model) {
    state["master_weights"][name] = counted(DType::kF32, weight.shape);
    for (const char* moment : {"/moment1_0", "/moment2_0"}) {
      state["optimizer"][name + moment] = counted(DType::kF32, weight.shape);
    }
    for (const char* power : {"/beta1_pow_acc_0", "/beta2_pow_acc_0"}) {
      state["optimizer"][name + power] = counted(DType::kF32, {1});
    }
  }
  return state;
}

plan::Catalog catalog_of(const State& state) {
  std::vector<plan::CatalogTensor> tensors;
  for (const auto& [section, all] : state) {
    for (const auto& [name, tensor] : all) tensors.push_back({section, name, tensor.dtype, tensor.shape, {}});
  }
  return plan::make_catalog(std::move(tensors));
}

/// The state that the form's map makes of `given`.
State mapped(const interop::Form& form, const State& given) {
  interop::StateToWrite state;
  state.config = kConfig;
  interop::Notes notes;
  const plan::Catalog source = catalog_of(given);
  const plan::TensorMap map = form.map(source, state, 2, notes);
  std::vector<base::Bytes> bytes;
  for (const plan::CatalogTensor& tensor : source.tensors) {
    bytes.push_back(given.at(tensor.section).at(tensor.name).bytes);
  }
  State out;
  for (std::uint32_t i = 0; i < map.catalog.tensors.size(); ++i) {
    const plan::CatalogTensor& to = map.catalog.tensors[i];
    out[to.section][to.name] = {to.dtype, to.shape, made_by(map, i, source, bytes)};
  }
  return out;
}

void convert_on(int ranks, const fs::path& from, const fs::path& to, const std::string& word) {
  const interop::FormTraits& form = interop::form_called(word).traits();
  comm::run_simulated(ranks, [&](comm::Communicator& communicator) {
    conversion::ConvertOptions options;
    options.write.engine.name = "posix";
    options.write.files.block_bytes = 4096;
    options.write.files.max_bytes = 3000;
    options.read = {"posix", 1 << 20, {}};
    options.to = word;
    options.keep_names = form.keeps_names;
    if (form.is_sharded) options.layout = "fsdp=2";
    if (form.asks_processes) options.processes = 2;
    conversion::convert(communicator, from, to, options);
  });
}

/// Expects `word` to be recognised and `expected` read back, without the manifest, which names it, and the block table.
void expect_read_back(const fs::path& directory, const std::string& word, const State& expected) {
  EXPECT_EQ(opening::open_here(directory).manifest.value().form, word);
  for (const char* file : {format::kManifestFile, format::kBlocksFile}) fs::remove(directory / file);
  const interop::Dialect* dialect = interop::dialect_called(opening::open_here(directory).about.dialect);
  ASSERT_NE(dialect, nullptr);
  const auto is_of_form = [&](const interop::Form* form) { return form->traits().word == word; };
  EXPECT_TRUE(std::ranges::any_of(dialect->forms(), is_of_form)) << dialect->name();
  const fs::path back = directory.string() + ".back";
  convert_on(2, directory, back, "hf");
  for (const auto& [section, tensors] : expected) {
    const FileTensors found = read_section(back, section);
    ASSERT_EQ(found.size(), tensors.size());
    for (const auto& [name, tensor] : tensors) EXPECT_EQ(found.at(name), tensor) << name;
  }
}

class Forms : public testing::TestWithParam<std::string> {};

TEST_P(Forms, AConversionIsReadBack) {
  const TempDir root;
  fs::create_directories(root / "source");
  for (const auto& [section, tensors] : llama()) {
    write_safetensors(root / "source" / (section + ".safetensors"), tensors, {});
  }
  write_file(root / "source" / "config.json", kConfig);
  for (const int ranks : {1, 3}) {
    const fs::path to = root / std::to_string(ranks);
    convert_on(ranks, root / "source", to, GetParam());
    expect_read_back(to, GetParam(), mapped(interop::form_called(GetParam()), llama()));
  }
}

TEST_P(Forms, ASaveIsReadBack) {
  const TempDir root;
  Options options;
  options.engine.name = "posix";
  options.files.block_bytes = 4096;
  options.files.max_bytes = 3000;
  options.files.form = GetParam();
  const State state = mapped(interop::form_called(GetParam()), llama());
  const auto save = [&](comm::Communicator& communicator) {
    std::vector<Source> sources;
    for (const auto& [section, tensors] : state) {
      for (const auto& [name, tensor] : tensors) {
        Source source;
        source.section = section;
        source.name = name;
        source.dtype = tensor.dtype;
        source.shape = tensor.shape;
        source.boxes = {{std::vector<std::uint64_t>(tensor.shape.size()), tensor.shape}};
        source.data = tensor.bytes.data();
        sources.push_back(std::move(source));
      }
    }
    Extras extras;
    extras.carry_texts["config.json"] = kConfig;
    io::WindowStore store;
    checkpoint::Saver saver(communicator, options, store);
    saver.save(root / "checkpoint-7", 7, sources, extras);
  };
  if (interop::form_called(GetParam()).traits().is_sharded) {
    EXPECT_THROW(comm::run_simulated(2, save), Error);
    return;
  }
  comm::run_simulated(2, save);
  expect_read_back(root / "checkpoint-7", GetParam(), state);
}

INSTANTIATE_TEST_SUITE_P(All, Forms, testing::ValuesIn(interop::form_words()), [](const auto& word) {
  std::string name = word.param;
  std::erase(name, '-');
  return name;
});

/// Gives the made-up form a different map while this object exists.
class OtherMap {
 public:
  explicit OtherMap(std::function<plan::TensorMap(const plan::Catalog&)> map) {
    interop::made_up_map() = std::move(map);
  }
  OtherMap(const OtherMap&) = delete;
  OtherMap& operator=(const OtherMap&) = delete;
  ~OtherMap() { interop::made_up_map() = {}; }
};

void convert_mapped(int ranks, const fs::path& from, const fs::path& to, std::uint64_t block_bytes,
                    const std::string& word, const std::string& quant) {
  comm::run_simulated(ranks, [&](comm::Communicator& communicator) {
    conversion::ConvertOptions options;
    options.write.engine.name = "posix";
    options.write.files.block_bytes = block_bytes;
    options.write.files.max_bytes = 20'000;
    options.write.limits.memory_budget_bytes = std::max<std::uint64_t>(64 << 10, 8 * block_bytes);
    options.read = {"posix", options.write.limits.memory_budget_bytes, {}};
    options.to = word;
    options.quant = quant;
    conversion::convert(communicator, from, to, options);
  });
}

void write_state_files(const fs::path& directory, const State& state) {
  fs::create_directories(directory);
  for (const auto& [section, tensors] : state) {
    write_safetensors(directory / (section + ".safetensors"), tensors, {});
  }
}

State expected_of(const State& given) { return mapped(interop::form_called("made-up"), given); }

TEST(AnyMap, IsWhatAConversionWritesInBlocksOfAnySize) {
  auto random = make_random(8);
  const TempDir root;
  State state;
  for (int i = 0; i < kDTypeCount; ++i) {
    const auto dtype = static_cast<DType>(i);
    for (const std::vector<std::uint64_t>& shape :
         std::vector<std::vector<std::uint64_t>>{{41, 24}, {24, 56}, {3, 5, 8}, {8, 7, 8}, {16}, {0, 8}}) {
      FileTensor tensor{dtype, shape, random_bytes(random, shard::elements_of(shape) * bits_of(dtype) / 8)};
      state["model"]["w" + std::to_string(state["model"].size())] = std::move(tensor);
    }
  }
  write_state_files(root / "source", state);
  int round = 0;
  for (const std::uint64_t block_bytes : {61U, 1021U, 4096U, 9001U}) {
    const plan::TensorMap map = random_map(random, catalog_of(state));
    const OtherMap other([&](const plan::Catalog&) { return map; });
    const fs::path to = root / std::to_string(block_bytes);
    convert_mapped(1 + round++ % 3, root / "source", to, block_bytes, "made-up", "keep");
    EXPECT_EQ(read_section(to, "model"), expected_of(state).at("model")) << block_bytes;
  }
}

/// The moments of "a" and "b", transposed and joined; and the moments of "a", cut in two, one part transposed.
plan::TensorMap joined_and_cut(const plan::Catalog& sources) {
  const auto numbers = plan::numbers_by_name(sources.tensors);
  plan::TensorMap map;
  const auto add = [&](const std::string& name, std::vector<std::uint64_t> shape, std::vector<plan::MapPiece> pieces) {
    map.pieces[static_cast<std::uint32_t>(map.sources.size())] = std::move(pieces);
    map.catalog.tensors.push_back({"optimizer", name, DType::kF32, std::move(shape), {}});
    map.sources.push_back(0);
  };
  for (const std::string moment : {"/moment1_0", "/moment2_0"}) {
    const std::uint32_t a = numbers.at({"optimizer", "a" + moment});
    const std::uint32_t b = numbers.at({"optimizer", "b" + moment});
    std::vector<plan::MapPiece> pieces = {plan::reversed(a, sources.tensors[a].shape),
                                          plan::reversed(b, sources.tensors[b].shape)};
    pieces[1].at[0] = 160;
    add("joined" + moment, {257, 96}, pieces);
    add("low" + moment, {96, 100}, {{a, {{0, 0}, {96, 100}}, {0, 0}, {0, 1}}});
    add("high" + moment, {60, 96}, {{a, {{0, 100}, {96, 60}}, {0, 0}, {1, 0}}});
  }
  return plan::in_catalog_order(std::move(map));
}

class MappedMoments : public testing::TestWithParam<std::string> {};

TEST_P(MappedMoments, AreTheCodesOfTheMappedTensors) {
  auto random = make_random(9);
  const TempDir root;
  State state;
  for (const std::string moment : {"/moment1_0", "/moment2_0"}) {
    for (const auto& [name, columns] : std::map<std::string, std::uint64_t>{{"a", 160}, {"b", 97}}) {
      std::vector<float> values;
      while (values.size() < 96 * columns)
        values.push_back(static_cast<float>(uniform(random, 0, 1 << 20)) / (1 << 20));
      const auto bytes = std::as_bytes(std::span(values));
      state["optimizer"][name + moment] = {DType::kF32, {96, columns}, {bytes.begin(), bytes.end()}};
    }
  }
  write_state_files(root / "source", state);
  const OtherMap other(joined_and_cut);
  const State expected = expected_of(state);
  write_state_files(root / "mapped", expected);
  convert_mapped(1, root / "mapped", root / "codes", 4096, "hf", GetParam());
  convert_mapped(1, root / "source", root / "coded", 4096, "hf", GetParam());
  for (const std::uint64_t block_bytes : {1021U, 4096U}) {
    const std::string name = std::to_string(block_bytes);
    convert_mapped(2, root / "source", root / name, block_bytes, "made-up", GetParam());
    EXPECT_EQ(read_section(root / name, "optimizer"), read_section(root / "codes", "optimizer")) << block_bytes;
    // The same map applied to coded moments.
    convert_mapped(3, root / "coded", root / (name + ".values"), block_bytes, "made-up", "off");
    convert_mapped(1, root / "coded", root / (name + ".decoded"), block_bytes, "hf", "off");
    const State decoded = {{"optimizer", read_section(root / (name + ".decoded"), "optimizer")}};
    EXPECT_EQ(read_section(root / (name + ".values"), "optimizer"), expected_of(decoded).at("optimizer"));
  }
}

INSTANTIATE_TEST_SUITE_P(Codecs, MappedMoments, testing::Values("q8", "q4", "paddle-o1", "paddle-o2"),
                         kNamedByParameter);

TEST(FormWords, HaveTheOneThatIsMadeUp) {
  EXPECT_EQ(interop::form_words(), (std::vector<std::string>{"hf", "made-up", "paddleformers", "paddlenlp", "shards"}));
}

}  // namespace
}  // namespace cairn::test
