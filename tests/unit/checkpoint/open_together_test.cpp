// A directory opened by all ranks is what one rank opens; what is not plain, or is damaged, is left to one rank, whose words
// all ranks then throw.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <mutex>

#include "coded_files.hpp"
#include "directory/open.hpp"
#include "directory/open_parts.hpp"
#include "environment.hpp"
#include "format/hf_index.hpp"
#include "simulated.hpp"
#include "temp_dir.hpp"

namespace cairn::test {
namespace {

namespace fs = std::filesystem;
using checkpoint::OpenCheckpoint;

constexpr int kWorlds[] = {2, 3, 7};

std::string file_name(const std::string& stem, std::size_t number) {
  return stem + "-0000" + std::to_string(number + 1) + "-of-00005.safetensors";
}

/// Five files of a set; every fifth tensor in a file, so that files interleave in the catalog.
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
  write_file(folder / (stem + ".safetensors.index.json"), format::encode_hf_index(weight_map, 17, 0));
}

/// Two indexed sets, one without an index, a configuration and a folder.
void write_checkpoint(const fs::path& folder) {
  write_index(folder, "model", write_files(folder, "model", DType::kBF16));
  write_index(folder, "optimizer", write_files(folder, "optimizer", DType::kF32));
  write_files(folder, "ema", DType::kF64);
  write_file(folder / "config.json", "{}");
  fs::create_directory(folder / "more");
}

std::vector<std::string> described(const OpenCheckpoint& opened) {
  std::vector<std::string> out;
  for (const auto& file : opened.stored.files) out.push_back(file.name + " " + std::to_string(file.size_bytes));
  for (const auto& tensor : opened.stored.tensors) {
    out.push_back(tensor.section + "/" + tensor.name + " " + std::to_string(tensor.boxes.at(0).file) + " " +
                  std::to_string(tensor.boxes.at(0).offset_bytes) + " " + std::to_string(tensor.shape.at(0)) + " " +
                  std::string(name_of(tensor.dtype)));
  }
  for (const auto& [key, value] : opened.metadata) out.push_back(key + "=" + value);
  for (const auto* list : {&opened.disputed_metadata, &opened.carried, &opened.warnings}) {
    out.insert(out.end(), list->begin(), list->end());
  }
  out.emplace_back(interop::name_of(opened.dialect));
  out.push_back(opened.directory);
  return out;
}

/// How many ranks were given a checkpoint by all ranks together; each is compared with `expected`.
int opened_together(const fs::path& folder, int ranks, const std::vector<std::string>& expected) {
  std::mutex mutex;
  int opened = 0;
  comm::run_simulated(ranks, [&](comm::Communicator& communicator) {
    const auto found = checkpoint::open_together(communicator, folder, checkpoint::Links::kInside);
    const std::lock_guard lock(mutex);
    if (!found) return;
    ++opened;
    EXPECT_EQ(described(*found), expected);
  });
  return opened;
}

TEST(OpenTogether, IsWhatOneRankOpens) {
  const TempDir folder;
  write_checkpoint(folder.path());
  const auto expected = described(checkpoint::open_here(folder.path()));
  ASSERT_GT(expected.size(), 250U);
  EXPECT_THAT(expected, testing::Contains(testing::HasSubstr("total_size is 17")));
  EXPECT_THAT(expected, testing::Contains(testing::HasSubstr("more")));
  for (const int ranks : kWorlds) EXPECT_EQ(opened_together(folder.path(), ranks, expected), ranks);
  EXPECT_EQ(opened_together(folder.path() / "", 2, expected), 2);
}

/// After `change` nobody opens the directory together, and all ranks throw what one rank throws.
void expect_refused(const std::function<void(const fs::path&)>& change, const std::string& words) {
  const TempDir folder;
  write_checkpoint(folder.path());
  change(folder.path());
  std::string expected;
  try {
    (void)checkpoint::open_here(folder.path());
  } catch (const Error& error) {
    expected = error.what();
  }
  EXPECT_THAT(expected, testing::HasSubstr(words));
  for (const int ranks : kWorlds) {
    EXPECT_EQ(opened_together(folder.path(), ranks, {}), 0);
    std::mutex mutex;
    int refused = 0;
    comm::run_simulated(ranks, [&](comm::Communicator& communicator) {
      try {
        (void)checkpoint::open_checkpoint(communicator, folder.path());
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
  // The first file in order is the one that is named, whoever reads which.
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
}

}  // namespace
}  // namespace cairn::test
