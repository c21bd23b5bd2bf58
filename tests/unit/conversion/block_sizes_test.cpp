// Any block size works: saves, loads, conversions, transpositions and codes do not depend on where blocks end,
// even within elements, within groups of sub-byte elements, and within the blocks and scales of codecs.
#include <gtest/gtest.h>

#include <random>

#include "checkpoint/verify.hpp"
#include "coded_files.hpp"
#include "conversion/convert.hpp"
#include "conversion/diff.hpp"
#include "hdf5/library.hpp"
#include "quantised_state.hpp"
#include "random.hpp"
#include "shard/box_math.hpp"
#include "simulated_save.hpp"
#include "test_name.hpp"

namespace cairn::test {
namespace {

namespace fs = std::filesystem;

Options options_with(std::uint64_t block_bytes) {
  Options options = small_options();
  options.files.block_bytes = block_bytes;
  options.limits.memory_budget_bytes = std::max<std::uint64_t>(64 << 10, 8 * block_bytes);
  return options;
}

/// Runs `work` for six odd block sizes, two of them random, each in a separate directory.
template <class Work>
void for_each_size(const fs::path& root, const Work& work) {
  std::vector<std::uint64_t> sizes{9, 61, 1021, 4099};
  auto random = make_random(61);
  for (int i = 0; i < 2; ++i) sizes.push_back(std::uniform_int_distribution<std::uint64_t>(64, 9000)(random) | 1U);
  for (const std::uint64_t size : sizes) {
    SCOPED_TRACE("blocks of " + std::to_string(size) + " bytes");
    const fs::path at = root / std::to_string(size);
    fs::create_directory(at);
    work(at, options_with(size));
  }
}

std::map<std::string, std::string> without_blocks(const fs::path& directory) {
  auto files = data_files(directory);
  EXPECT_EQ(files.erase(format::kBlocksFile), 1U);
  return files;
}

void expect_whole(const fs::path& directory) {
  comm::run_simulated(2, [&](comm::Communicator& communicator) {
    const auto result = checkpoint::verify(communicator, directory);
    EXPECT_TRUE(result.has_checksums);
    EXPECT_TRUE(result.faults.empty()) << result.faults.front().message;
  });
}

TEST(BlockSizes, SavesAreTheSameFilesAndLoad) {
  const TempDir root;
  save_simulated(root / "usual", 1, Cut::kMixed, 3);
  const auto expected = without_blocks(root / "usual/checkpoint-1");
  for_each_size(root.path(), [&](const fs::path& at, const Options& options) {
    save_simulated(at, 1, Cut::kMixed, 3, options);
    EXPECT_EQ(without_blocks(at / "checkpoint-1"), expected);
    expect_loads(at / "checkpoint-1", 1, Cut::kColumns, 2, options.limits.memory_budget_bytes);
    expect_whole(at / "checkpoint-1");
  });
}

void convert_on(int ranks, const fs::path& from, const fs::path& to, conversion::ConvertOptions options) {
  options.read = {"posix", options.write.limits.memory_budget_bytes, {}};
  comm::run_simulated(ranks,
                      [&](comm::Communicator& communicator) { conversion::convert(communicator, from, to, options); });
}

TEST(BlockSizes, ConversionsToShardsAndBackAreTheSame) {
  const TempDir root;
  save_simulated(root / "usual", 1, Cut::kMixed, 3);
  const fs::path original = root / "usual/checkpoint-1";
  const auto expected = without_blocks(original);
  for_each_size(root.path(), [&](const fs::path& at, const Options& options) {
    conversion::ConvertOptions back;
    back.write = options;
    conversion::ConvertOptions to_shards = back;
    to_shards.to = "shards";
    to_shards.layout = "fsdp=3";
    convert_on(2, original, at / "shards", to_shards);
    convert_on(3, at / "shards", at / "checkpoint-1", back);
    EXPECT_EQ(without_blocks(at / "checkpoint-1"), expected);
    expect_whole(at / "shards");
    comm::run_simulated(2, [&](comm::Communicator& communicator) {
      const conversion::DiffOptions how{{"posix", options.limits.memory_budget_bytes, {}}, {}, false};
      EXPECT_TRUE(conversion::diff(communicator, at / "shards", original, how).equal());
    });
  });
}

TEST(BlockSizes, TransposedWeightsOfEverySizeOfElementsAreWhole) {
  const TempDir root;
  FileTensors model;
  const std::string stem = "model.layers.0.";
  model[stem + "mlp.gate_proj.weight"] = counted(DType::kF32, {67, 41});
  model[stem + "mlp.up_proj.weight"] = counted(DType::kF64, {67, 41});
  model[stem + "mlp.down_proj.weight"] = counted(DType::kF16, {41, 67});
  model[stem + "self_attn.q_proj.weight"] = counted(DType::kF8E4M3, {41, 41});
  model[stem + "self_attn.o_proj.weight"] = counted(DType::kF32, {41, 41});
  model[stem + "input_layernorm.weight"] = counted(DType::kF32, {41});
  model["model.embed_tokens.weight"] = counted(DType::kF32, {97, 41});
  fs::create_directory(root / "hf");
  write_safetensors(root / "hf/model.safetensors", model, {});
  write_file(root / "hf/config.json",
             R"({"model_type": "llama", "hidden_size": 41, "intermediate_size": 67, "vocab_size": 97})");
  for_each_size(root.path(), [&](const fs::path& at, const Options& options) {
    conversion::ConvertOptions how;
    how.write = options;
    how.to = "paddlenlp";
    for (const int ranks : {1, 3}) {
      const fs::path to = at / std::to_string(ranks);
      convert_on(ranks, root / "hf", to, how);
      const FileTensors found = read_section(to, "model");
      ASSERT_EQ(found.size(), model.size());
      for (const auto& [name, tensor] : model) {
        const bool is_linear = name.find("_proj.") != std::string::npos;
        EXPECT_TRUE(found.at("llama" + name.substr(5)) == (is_linear ? transposed(tensor) : tensor)) << name;
      }
      expect_whole(to);
    }
  });
}

/// A tensor of a sub-byte dtype, whose bytes differ from their neighbours.
FileTensor packed(DType dtype, std::vector<std::uint64_t> shape) {
  FileTensor tensor{dtype, std::move(shape), {}};
  tensor.bytes.resize(shard::elements_of(tensor.shape) * bits_of(dtype) / 8);
  for (std::size_t i = 0; i < tensor.bytes.size(); ++i) tensor.bytes[i] = static_cast<std::byte>(i * 37 + i / 256);
  return tensor;
}

TEST(BlockSizes, RowsThatEndInsideAByteAreConvertedStagedAndCompared) {
  const TempDir root;
  FileTensors model;
  model["a"] = packed(DType::kF4, {202, 41});
  model["b"] = packed(DType::kF4, {2, 3, 1367});
  model["c"] = packed(DType::kF6E2M3, {36, 35});
  model["d"] = packed(DType::kF6E3M2, {4, 51, 7});
  FileTensors other = model;  // with one other element in each tensor
  for (auto& [name, tensor] : other) tensor.bytes[tensor.bytes.size() / 2] ^= std::byte{1};
  for (const auto& [directory, tensors] : {std::pair("hf", &model), std::pair("other", &other)}) {
    fs::create_directory(root / directory);
    write_safetensors(root / directory / "model.safetensors", *tensors, {});
  }
  for_each_size(root.path(), [&](const fs::path& at, const Options& options) {
    conversion::ConvertOptions how;
    how.write = options;
    convert_on(3, root / "hf", at / "again", how);
    convert_on(3, root / "other", at / "changed", how);
    EXPECT_EQ(read_section(at / "again", "model"), model);
    if (hdf5::is_available()) {
      convert_on(2, root / "hf", at / "state.h5", how);
      convert_on(2, at / "state.h5", at / "back", how);
      EXPECT_EQ(read_section(at / "back", "model"), model);
    }
    comm::run_simulated(3, [&](comm::Communicator& communicator) {
      const conversion::DiffOptions options_of_diff{{"posix", options.limits.memory_budget_bytes, {}}, {}, false};
      EXPECT_TRUE(conversion::diff(communicator, root / "hf", at / "again", {}).equal());
      const auto result = conversion::diff(communicator, at / "changed", at / "again", options_of_diff);
      EXPECT_EQ(result.differences.size(), model.size());
      for (const auto& row : result.differences) EXPECT_EQ(row.elements_differing, 1U) << row.name;
    });
  });
}

class CodesInBlocks : public testing::TestWithParam<const char*> {};

TEST_P(CodesInBlocks, AreThoseOfTheWhole) {
  const quant::Codec& codec = quant::find_codec(GetParam());
  const TempDir root;
  const auto save = [&](const fs::path& directory, const Options& options) {
    comm::run_simulated(3, [&](comm::Communicator& communicator) {
      MomentRank state(Cut::kMixed, communicator.rank(), 3);
      state.fill(1);
      io::WindowStore store;
      checkpoint::Saver(communicator, options, store).save(directory, 1, state.sources(), {});
    });
  };
  save(root / "plain", small_options());
  for_each_size(root.path(), [&](const fs::path& at, Options options) {
    conversion::ConvertOptions how;
    how.write = options;
    how.quant = GetParam();
    convert_on(2, root / "plain", at / "converted", how);
    expect_codes_of_the_whole(at / "converted", codec);
    options.quantisation.codecs["optimizer"] = GetParam();
    save(at / "saved", options);
    expect_codes_of_the_whole(at / "saved", codec);
  });
}

INSTANTIATE_TEST_SUITE_P(Codecs, CodesInBlocks, testing::Values("q8", "q4", "paddle-o1", "paddle-o2"),
                         kNamedByParameter);

}  // namespace
}  // namespace cairn::test
