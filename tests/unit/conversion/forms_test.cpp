// Every form: files that a conversion or a save writes in it are recognised by its dialect without the manifest,
// and read back as the tensors of the form's map. One of the forms is made up (made_up/):
// a folder and a line of dialects.cpp.
#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "cairn/error.hpp"
#include "checkpoint/save.hpp"
#include "coded_files.hpp"
#include "conversion/convert.hpp"
#include "environment.hpp"
#include "interop/dialect.hpp"
#include "opening/open.hpp"
#include "simulated.hpp"
#include "temp_dir.hpp"

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

/// The state after the form's map.
State mapped(const interop::Form& form, const State& given) {
  interop::StateToWrite state;
  state.config = kConfig;
  std::vector<std::string> notes;
  const plan::Catalog source = catalog_of(given);
  const interop::FormTensors tensors = form.map(source, state, 2, notes);
  State out;
  for (std::size_t i = 0; i < tensors.catalog.tensors.size(); ++i) {
    const plan::CatalogTensor& to = tensors.catalog.tensors[i];
    const plan::CatalogTensor& from = source.tensors.at(tensors.sources.at(i));
    const FileTensor& tensor = given.at(from.section).at(from.name);
    out[to.section][to.name] = tensors.transposed.at(i) ? transposed(tensor) : tensor;
    EXPECT_EQ(out[to.section][to.name].shape, to.shape);
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
    if (form.is_sharded) options.layout = "fsdp=2";
    if (form.asks_processes) options.processes = 2;
    conversion::convert(communicator, from, to, options);
  });
}

/// The manifest, which would name the dialect, is removed first.
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

TEST(FormWords, HaveTheOneThatIsMadeUp) {
  EXPECT_EQ(interop::form_words(), (std::vector<std::string>{"hf", "made-up", "paddleformers", "paddlenlp", "shards"}));
}

}  // namespace
}  // namespace cairn::test
