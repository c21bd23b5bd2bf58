// All ranks together find the same in a checkpoint as one rank alone, and read each header and index once. One rank
// alone examines a damaged directory, and all ranks throw its error.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <mutex>
#include <set>

#include "bounded.hpp"
#include "coded_files.hpp"
#include "environment.hpp"
#include "format/blocks.hpp"
#include "format/crc32c.hpp"
#include "format/hf_index.hpp"
#include "format/manifest.hpp"
#include "interop/file_names.hpp"
#include "opening/open.hpp"
#include "opening/open_steps.hpp"
#include "os/fault.hpp"
#include "os/system_calls.hpp"
#include "simulated.hpp"
#include "temp_dir.hpp"

namespace cairn::test {
namespace {

namespace fs = std::filesystem;
using opening::OpenCheckpoint;

constexpr int kWorlds[] = {2, 3, 7};

std::string file_name(const std::string& stem, std::size_t number) {
  return stem + "-0000" + std::to_string(number + 1) + "-of-00005.safetensors";
}

/// A set of five files; the files alternate in the catalog, since each has every fifth tensor.
std::map<std::string, std::string> write_files(const fs::path& folder, const std::string& stem, DType dtype) {
  std::map<std::string, std::string> weight_map;
  for (std::size_t number = 0; number < 5; ++number) {
    FileTensors tensors;
    for (std::size_t i = number; i < 83; i += 5) {
      const std::string name = "layers." + std::to_string(i) + ".w";
      tensors[name] = {dtype, {i % 4, 2}, base::Bytes(i % 4 * 2 * bits_of(dtype) / 8)};
      weight_map[name] = file_name(stem, number);
    }
    write_safetensors(folder / file_name(stem, number), tensors, {{"of", std::to_string(number / 4)}, {"k", "v"}});
  }
  return weight_map;
}

void write_index(const fs::path& folder, const std::string& stem,
                 const std::map<std::string, std::string>& weight_map) {
  const std::string text = format::encode_hf_index(weight_map, 17, 0);
  write_file(folder / (stem + ".safetensors.index.json"),
             R"({"more": [NaN, -Infinity, "\ud800"],)" + text.substr(1));  // only Python writes that
}

/// Writes two sets with an index, one set without an index, a file without tensors, two JSON files and a folder.
void write_checkpoint(const fs::path& folder) {
  write_index(folder, "model", write_files(folder, "model", DType::kBF16));
  write_index(folder, "optimizer", write_files(folder, "optimizer", DType::kF32));
  write_files(folder, "ema", DType::kF64);
  write_safetensors(folder / "nothing.safetensors", {}, {});  // between sections, and not part of any
  write_file(folder / "config.json", R"({"transformers_version": "4.57.1"})");
  write_file(folder / "trainer_state.json", R"({"global_step": 17})");
  fs::create_directory(folder / "more");
}

std::vector<std::string> described(const OpenCheckpoint& opened) {
  std::vector<std::string> out;
  for (std::size_t i = 0; i < opened.stored.files.size(); ++i) {
    const format::StoredFile& file = opened.stored.files[i];
    out.push_back(file.name + " " + std::to_string(file.size_bytes) + " in group " +
                  std::to_string(opened.group_of_file.at(i)));
  }
  for (const auto& tensor : opened.stored.tensors) {
    out.push_back(tensor.section + "/" + tensor.name + " " + std::to_string(tensor.boxes.at(0).file) + " " +
                  std::to_string(tensor.boxes.at(0).offset_bytes) + " " + std::to_string(tensor.shape.at(0)) + " " +
                  std::string(name_of(tensor.dtype)));
  }
  for (const auto& [key, value] : opened.metadata) out.push_back(key + "=" + value);
  for (const auto* list : {&opened.disputed_metadata, &opened.carried, &opened.warnings}) {
    out.insert(out.end(), list->begin(), list->end());
  }
  if (opened.manifest) {
    format::Manifest manifest = *opened.manifest;
    manifest.data_files.clear();
    out.push_back(format::encode_manifest(manifest));
    out.push_back("checksum " + std::to_string(opened.manifest_crc32c));
    for (const format::BlockRow& row : opened.blocks.value().files()) {
      out.push_back(std::string(row.name()) + " " + std::to_string(row.size_bytes()));
      for (const std::uint32_t crc : row.unpacked().crcs) out.push_back(std::to_string(crc));
    }
  }
  out.push_back(opened.about.dialect + "|" + opened.about.version + "|" +
                std::to_string(opened.about.step.value_or(0)));
  out.push_back(opened.directory);
  return out;
}

/// Returns the number of ranks that opened the checkpoint; compares each with `expected`.
int opened_together(const fs::path& folder, int ranks, const std::vector<std::string>& expected) {
  std::mutex mutex;
  int opened = 0;
  comm::run_simulated(ranks, [&](comm::Communicator& communicator) {
    const OpenCheckpoint found = opening::open_checkpoint(communicator, folder);
    const std::lock_guard lock(mutex);
    ++opened;
    EXPECT_EQ(described(found), expected);
  });
  return opened;
}

TEST(OpenTogether, IsWhatOneRankOpens) {
  const TempDir folder;
  write_checkpoint(folder.path());
  const auto expected = described(opening::open_here(folder.path()));
  ASSERT_GT(expected.size(), 250U);
  EXPECT_THAT(expected, testing::Contains(testing::HasSubstr("total_size is 17")));
  EXPECT_THAT(expected, testing::Contains(testing::HasSubstr("more")));
  EXPECT_THAT(expected, testing::Contains("Hugging Face|transformers 4.57.1|17"));
  for (const int ranks : kWorlds) EXPECT_EQ(opened_together(folder.path(), ranks, expected), ranks);
  EXPECT_EQ(opened_together(folder.path() / "", 2, expected), 2);
}

TEST(OpenTogether, FindsFilesInFoldersThatAnIndexLists) {
  const TempDir folder;
  write_checkpoint(folder.path());
  fs::create_directories(folder.path() / "layers" / "7");
  const std::string name = "layers/7/layer.safetensors";
  std::map<std::string, std::string> weight_map = write_files(folder.path(), "model", DType::kBF16);
  write_safetensors(folder.path() / name, {{"extra.w", {DType::kBF16, {1, 2}, base::Bytes(4)}}}, {});
  weight_map["extra.w"] = name;
  write_index(folder.path(), "model", weight_map);
  const auto expected = described(opening::open_here(folder.path()));
  EXPECT_THAT(expected, testing::Contains(testing::HasSubstr(name)));
  EXPECT_THAT(expected, testing::Contains(testing::HasSubstr("model/extra.w")));
  EXPECT_THAT(expected, testing::Not(testing::Contains(testing::HasSubstr("neither read nor carried along: layers"))));
  for (const int ranks : kWorlds) EXPECT_EQ(opened_together(folder.path(), ranks, expected), ranks);
  fs::remove(folder.path() / name);
  EXPECT_THROW(static_cast<void>(opening::open_here(folder.path())), Error);
}

TEST(OpenTogether, LeavesCompanionsOut) {
  const TempDir folder;
  write_checkpoint(folder.path());
  const auto expected = described(opening::open_here(folder.path()));
  for (const char* name : {"config.json", "nothing.safetensors", "model.safetensors.index.json"}) {
    write_file(folder.path() / ("._" + std::string(name)), std::string("\0\5\26\7", 4));
  }
  write_file(folder.path() / ".model.safetensors", "a hidden file");
  for (const int ranks : {1, 3}) EXPECT_EQ(opened_together(folder.path(), ranks, expected), ranks);
}

/// A dialect's access to files that are not safetensors.
TEST(AccessToFiles, StaysInsideTheDirectory) {
  const TempDir folder;
  const TempDir other;
  fs::create_directory(folder.path() / "sub");
  write_file(folder.path() / "sub/a.bin", "abcdef");
  write_file(other.path() / "secret", "x");
  fs::create_symlink(other.path() / "secret", folder.path() / "sub/link");
  fs::create_directory_symlink(other.path(), folder.path() / "linked");
  const interop::FileAccess access = opening::access_to(folder.path(), opening::Links::kInside);
  const auto entries = access.list("sub");
  ASSERT_EQ(entries.size(), 2U);
  EXPECT_EQ(entries[0].name, "sub/a.bin");
  EXPECT_EQ(entries[0].size_bytes, 6U);
  const base::ByteSource source = access.open("sub/a.bin");
  EXPECT_EQ(source.size_bytes, 6U);
  std::string part(3, ' ');
  source.read(std::as_writable_bytes(std::span(part)), 2);
  EXPECT_EQ(part, "cde");
  for (const char* name : {"../secret", "/etc/passwd", "sub/link", "linked/secret", "sub/none"}) {
    EXPECT_THROW((void)access.open(name), Error) << name;
  }
  for (const char* name : {"..", "linked", "none"}) EXPECT_THROW((void)access.list(name), Error) << name;
  const interop::FileAccess followed = opening::access_to(folder.path(), opening::Links::kFollow);
  EXPECT_EQ(followed.open("linked/secret").size_bytes, 1U);
}

/// Adds a block table and a manifest as a save would, with most optional keys.
void add_manifest(const fs::path& folder) {
  constexpr std::uint64_t kBlockBytes = 64;
  format::BlockTable table{kBlockBytes, {}};
  format::Manifest manifest;
  manifest.tool = "test";
  manifest.step = 7;
  manifest.has_step = true;
  manifest.run_id = "run";
  manifest.parent = "checkpoint-6";
  manifest.epoch = 3;
  manifest.counter = 2;
  manifest.lineage = {{1, 4}, {2, 6}};
  manifest.layout = "fsdp=2";
  manifest.ranks = 2;
  manifest.block_bytes = kBlockBytes;
  manifest.user_metadata["loss"] = "2\u00e9.5";
  manifest.extra["later"] = {{"x", 0.1}, {"y", {1, -2}}};
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename();
    const std::string text = entry.is_regular_file() ? read_file(entry.path()) : "";
    if (name == "config.json")
      manifest.carried_files.push_back({name, "", text.size(), format::crc32c(base::as_bytes(text))});
    if (!name.ends_with(".safetensors")) continue;
    const std::vector<std::string> names = {name};
    const std::vector<std::uint64_t> sizes = {text.size()};
    format::BlockAccumulator blocks(sizes, kBlockBytes);
    blocks.add(0, 0, base::as_bytes(text));
    table.files.push_back(blocks.finish(names).files.at(0));
    manifest.data_files.push_back({name, name.substr(0, name.find_first_of("-.")), text.size(),
                                   format::file_digest(table.files.back(), kBlockBytes)});
  }
  const base::Bytes encoded = format::encode_blocks(table);
  manifest.blocks_crc32c = format::crc32c(encoded);
  write_file(folder / "cairn.blocks", {reinterpret_cast<const char*>(encoded.data()), encoded.size()});
  write_file(folder / "cairn.json", format::encode_manifest(manifest));
}

TEST(OpenTogether, KnowsManifestAndChecksums) {
  const TempDir folder;
  write_checkpoint(folder.path());
  add_manifest(folder.path());
  const OpenCheckpoint here = opening::open_here(folder.path());
  EXPECT_EQ(here.manifest.value().data_files.size(), 16U);
  const auto expected = described(here);
  EXPECT_THAT(expected, testing::Contains(testing::HasSubstr("\"later\"")));
  for (const int ranks : kWorlds) EXPECT_EQ(opened_together(folder.path(), ranks, expected), ranks);
  EXPECT_EQ(described(opening::decode_open(opening::encode_open(here))), expected);
}

/// Expects all ranks together to throw, after `change`, the error that one rank alone throws.
void expect_refused(const std::function<void(const fs::path&)>& change, const std::string& words) {
  const TempDir folder;
  write_checkpoint(folder.path());
  change(folder.path());
  std::string expected;
  try {
    (void)opening::open_here(folder.path());
  } catch (const Error& error) {
    expected = error.what();
  }
  EXPECT_THAT(expected, testing::HasSubstr(words));
  for (const int ranks : kWorlds) {
    std::mutex mutex;
    int refused = 0;
    comm::run_simulated(ranks, [&](comm::Communicator& communicator) {
      try {
        (void)opening::open_checkpoint(communicator, folder.path());
      } catch (const Error& error) {
        const std::lock_guard lock(mutex);
        refused += std::string(error.what()).starts_with(expected) ? 1 : 0;
      }
    });
    EXPECT_EQ(refused, ranks) << words;
  }
}

TEST(OpenTogether, LeavesErrorsToOneRank) {
  const auto cut = [](const fs::path& path) { fs::resize_file(path, fs::file_size(path) - 1); };
  expect_refused([&](const fs::path& folder) { cut(folder / file_name("model", 2)); }, "cut off");
  // The error names the first file in order, whichever rank reads it.
  expect_refused(
      [&](const fs::path& folder) {
        cut(folder / file_name("optimizer", 4));
        cut(folder / file_name("model", 3));
      },
      file_name("model", 3));
  expect_refused(
      [&](const fs::path& folder) {
        auto map = write_files(folder, "model", DType::kBF16);
        map["layers.7.w"] = file_name("model", 0);
        write_index(folder, "model", map);
      },
      "'layers.7.w'");
  expect_refused([&](const fs::path& folder) { fs::remove(folder / file_name("optimizer", 1)); }, "is missing");
  expect_refused([&](const fs::path& folder) { fs::remove(folder / file_name("ema", 1)); }, "is missing");
  expect_refused([&](const fs::path& folder) { write_file(folder / "model.safetensors.index.json", "{"); }, "JSON");
  expect_refused(
      [&](const fs::path& folder) {
        FileTensors tensors = read_safetensors(folder / file_name("ema", 1));
        tensors.merge(read_safetensors(folder / file_name("ema", 4)));
        write_safetensors(folder / file_name("ema", 4), tensors, {});
      },
      "as well");
  expect_refused([&](const fs::path& folder) { fs::copy_file(folder / "config.json", folder / "cairn.json"); },
                 "cairn.");
  const auto refuse_with_manifest = [&](const std::function<void(const fs::path&)>& change, const std::string& words) {
    expect_refused(
        [&](const fs::path& folder) {
          add_manifest(folder);
          change(folder);
        },
        words);
  };
  refuse_with_manifest([](const fs::path& folder) { fs::resize_file(folder / "cairn.blocks", 100); },
                       "one of the two is damaged");
  refuse_with_manifest([](const fs::path& folder) { fs::remove(folder / "nothing.safetensors"); }, "is missing");
  refuse_with_manifest([](const fs::path& folder) { write_file(folder / "config.json", "{} "); }, "were written");
  refuse_with_manifest(
      [](const fs::path& folder) {
        std::string text = read_file(folder / file_name("model", 2));
        text[40] ^= 1;
        write_file(folder / file_name("model", 2), text);
      },
      "block 0, which holds its header");
}

/// Whether a header, index or pickle is read from the file.
bool is_read(const std::string& name) {
  return interop::is_data_name(name) || interop::is_pickle_name(name) || interop::set_of_index(name).has_value();
}

/// Opens a checkpoint on ranks that are given directories. Expects each header, index and pickle in them to be opened
/// once by all ranks together (weight pickles of PaddlePaddle: twice). Returns the number of opens by rank 0.
std::size_t expect_opened_once(int ranks, const std::function<opening::Parts(int rank)>& parts_of) {
  std::set<fs::path> files;
  for (int rank = 0; rank < ranks; ++rank) {
    for (const fs::path& directory : parts_of(rank).paths) {
      for (const fs::directory_entry& entry : fs::directory_iterator(directory)) {
        if (entry.is_regular_file() && is_read(entry.path().filename())) files.insert(entry.path());
      }
    }
  }
  EXPECT_GE(files.size(), 2U);
  os::Recording recording;
  comm::run_simulated(ranks, [&](comm::Communicator& communicator) {
    os::set_fault_rank(communicator.rank());  // for the recorded calls
    const OpenCheckpoint opened = opening::open_checkpoint(communicator, parts_of(communicator.rank()));
    EXPECT_FALSE(opened.stored.tensors.empty());
  });
  std::map<fs::path, int> opens;
  std::size_t on_root = 0;
  for (const os::Operation& operation : recording.take()) {
    if (operation.name != "open" || !is_read(operation.path.filename())) continue;
    ++opens[operation.path];
    on_root += operation.rank == 0 ? 1 : 0;
  }
  os::set_fault_rank(0);
  for (const auto& [path, count] : opens) {
    // PaddlePaddle's weight pickles are opened twice, because the elements of replicas in them are compared.
    const int times = path.filename().string().starts_with("model_state.") ? 2 : 1;
    EXPECT_EQ(count, times) << path << " on " << ranks << " ranks";
  }
  for (const fs::path& path : files) EXPECT_TRUE(opens.contains(path)) << path << " on " << ranks << " ranks";
  EXPECT_EQ(opens.size(), files.size());
  return on_root;
}

void expect_opened_once(const fs::path& directory) {
  for (const int ranks : {1, 2, 3}) expect_opened_once(ranks, [&](int) { return opening::Parts(directory); });
}

TEST(OpensOfFiles, HuggingFaceReadsByShares) {
  const TempDir folder;
  write_checkpoint(folder.path());
  for (const int ranks : {1, 2, 3}) {
    const std::size_t on_root = expect_opened_once(ranks, [&](int) { return opening::Parts(folder.path()); });
    EXPECT_LE(on_root, (16U + 2U) / static_cast<unsigned>(ranks) + 1);
  }
  add_manifest(folder.path());
  expect_opened_once(folder.path());
}

TEST(OpensOfFiles, AreOneForEachFileOfEachDialect) {
  expect_opened_once(test_data("dcp/hf_sharded/ckpt"));
  expect_opened_once(test_data("paddle/n-dp2-O1"));
  expect_opened_once(test_data("paddle/n-legacy-tp2"));
  // One of the checkpoint's indexes has no weight_map.
  const TempDir folder;
  fs::copy(test_data("paddle/n-tp2-O1-nomerge"), folder.path());
  for (const char* name : {"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"}) {
    fs::copy(test_data("paddle/n-tp2-O1") / name, folder.path());
  }
  expect_opened_once(folder.path());
}

/// Files of several machines, opened on ranks that see all directories and on ranks that see one each.
TEST(OpensOfFiles, AreOneForEachFileOfSeveralDirectories) {
  for (const char* name : {"dcp/hf_sharded/ckpt", "paddle/n-dp2-O1", "paddle/n-legacy-tp2"}) {
    const TempDir root;
    std::vector<fs::path> folders;
    for (int i = 0; i < 3; ++i) fs::create_directory(folders.emplace_back(root.path() / std::to_string(i)));
    std::size_t number = 0;
    for (const fs::directory_entry& entry : fs::directory_iterator(test_data(name))) {
      const std::string file = entry.path().filename();
      fs::copy(entry.path(), folders[is_read(file) && !file.ends_with(".json") ? number++ % folders.size() : 0]);
    }
    for (const int ranks : {1, 2, 3}) {
      expect_opened_once(ranks, [&](int) { return opening::Parts(folders); });
    }
    if (name == std::string("paddle/n-legacy-tp2")) continue;  // pickles are compared before they are read
    expect_opened_once(3, [&](int rank) {
      return opening::Parts(std::vector{folders[static_cast<std::size_t>(rank)]}, Sight::kEachRank);
    });
  }
}

/// Files that no dialect reads take no memory, whatever their suffixes; nor does a text file that is too large.
TEST(OpenTexts, LargeTextsAreNotRead) {
  const TempDir root;
  write_safetensors(root / "model.safetensors", {{"w", {DType::kF32, {1}, base::Bytes(4)}}}, {});
  const auto write_large = [&](const std::string& name, std::uint64_t bytes) {
    write_file(root / name, "{}");
    fs::resize_file(root / name, bytes);
  };
  for (int i = 0; i < 4; ++i) write_large("vocabulary" + std::to_string(i) + ".json", 200 << 20);
  write_large("config.json", 200 << 20);
  write_large("trainer_state.json", 200 << 20);
  OpenCheckpoint opened;
  expect_bounded(5, 32 << 20, [&] { opened = opening::open_here(root.path()); });
  EXPECT_EQ(opened.carried.size(), 6U);
  EXPECT_THAT(opened.about.left,
              testing::ElementsAre(testing::HasSubstr("config.json"), testing::HasSubstr("trainer_state")));
}

}  // namespace
}  // namespace cairn::test
