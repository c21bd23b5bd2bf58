// Verify finds a flipped bit anywhere and names file, tensor and block; loads refuse the damaged checkpoint.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

#include "cairn/error.hpp"
#include "checkpoint/root_log.hpp"
#include "checkpoint/verify.hpp"
#include "format/limits.hpp"
#include "format/manifest.hpp"
#include "format/safetensors.hpp"
#include "opening/written_blocks.hpp"
#include "random.hpp"
#include "root/run_log.hpp"
#include "simulated_save.hpp"

namespace cairn::test {
namespace {

namespace fs = std::filesystem;

checkpoint::VerifyResult verify_simulated(const fs::path& directory, int ranks) {
  checkpoint::VerifyResult result;
  comm::run_simulated(ranks, [&](comm::Communicator& communicator) {
    auto mine = checkpoint::verify(communicator, directory);
    if (communicator.rank() == 0) result = std::move(mine);
  });
  return result;
}

void flip_bit(const fs::path& path, std::uint64_t bit) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(static_cast<std::streamoff>(bit / 8));
  const int byte = file.get();
  file.seekp(static_cast<std::streamoff>(bit / 8));
  file.put(static_cast<char>(byte ^ 1 << bit % 8));
  ASSERT_TRUE(file.good()) << path;
}

TEST(Integrity, AWholeCheckpointVerifies) {
  const TempDir root;
  save_simulated(root.path(), 1, Cut::kMixed, 4);
  std::uint64_t bytes = 0;
  for (const auto& entry : fs::directory_iterator(root / "checkpoint-1")) {
    if (entry.path().extension() == ".safetensors") bytes += entry.file_size();
  }
  for (const int ranks : {1, 3}) {
    const auto result = verify_simulated(root / "checkpoint-1", ranks);
    EXPECT_TRUE(result.faults.empty());
    EXPECT_TRUE(result.has_checksums);
    EXPECT_EQ(result.bytes, bytes);
    EXPECT_EQ(result.tensors, small_state().size());
  }
}

/// Verifies two slices of the data at most, from where the log of the root says, and adds a line to the log.
checkpoint::VerifyResult verify_a_part(const fs::path& root, int ranks) {
  const auto about = format::log_by_step(root::read_run_log(root))[1];
  checkpoint::VerifyResult result;
  comm::run_simulated(ranks, [&](comm::Communicator& communicator) {
    int questions = 0;
    checkpoint::VerifyPart part{0, 0, [&] { return ++questions < 2; }, 50'000};
    if (about.scrubbed) {
      part.begin_bytes = about.scrubbed->position_bytes;
      part.manifest_crc32c = static_cast<std::uint32_t>(std::stoul(about.scrubbed->manifest, nullptr, 16));
    }
    auto mine = checkpoint::verify_and_log(communicator, root / "checkpoint-1", {}, part);
    if (communicator.rank() == 0) result = std::move(mine);
  });
  return result;
}

TEST(Integrity, AVerificationGoesOnWhereTheLastOneEnded) {
  for (const int ranks : {1, 3}) {
    const TempDir root;
    save_simulated(root.path(), 1, Cut::kMixed, 4);
    const checkpoint::VerifyResult whole = verify_simulated(root / "checkpoint-1", 1);
    EXPECT_FALSE(whole.position_bytes);
    std::uint64_t bytes = 0;
    std::uint64_t blocks = 0;
    int parts = 0;
    for (bool is_ended = false; !is_ended; ++parts) {
      ASSERT_LT(parts, 20);
      const checkpoint::VerifyResult part = verify_a_part(root.path(), ranks);
      EXPECT_TRUE(part.faults.empty());
      bytes += part.bytes;
      blocks += part.blocks;
      is_ended = !part.position_bytes;
      if (!is_ended) {
        EXPECT_EQ(*part.position_bytes, bytes);
      }
      const format::RunLog log = root::read_run_log(root.path());
      EXPECT_EQ(log.calls.back().what, is_ended ? format::kLogVerify : format::kLogScrub);
      EXPECT_EQ(format::log_by_step(log).at(1).verified.has_value(), is_ended);
    }
    EXPECT_GT(parts, ranks == 1 ? 5 : 2);
    EXPECT_EQ(bytes, whole.bytes);
    EXPECT_EQ(blocks, whole.blocks);
    const checkpoint::VerifyResult again = verify_a_part(root.path(), ranks);  // from the beginning
    ASSERT_TRUE(again.position_bytes);
    EXPECT_EQ(*again.position_bytes, again.bytes);
    // Another checkpoint of the step: what was verified says nothing about it.
    auto other = format::parse_manifest(read_file(root / "checkpoint-1/cairn.json"), "cairn.json");
    other.run_id = "best";
    write_file(root / "checkpoint-1/cairn.json", format::encode_manifest(other));
    const checkpoint::VerifyResult anew = verify_a_part(root.path(), ranks);
    ASSERT_TRUE(anew.position_bytes);
    EXPECT_EQ(*anew.position_bytes, anew.bytes);
  }
}

TEST(Integrity, APartWithAFaultIsNotAScrub) {
  const TempDir root;
  save_simulated(root.path(), 1, Cut::kMixed, 4);
  const auto opened = opening::open_here(root / "checkpoint-1");
  flip_bit(opened.path_of(opened.stored.files.back().name), 8 * 5000);
  int faults = 0;
  for (int part = 0; part < 20 && faults == 0; ++part)
    faults = static_cast<int>(verify_a_part(root.path(), 2).faults.size());
  EXPECT_EQ(faults, 1);
  const format::RunLog log = root::read_run_log(root.path());
  EXPECT_EQ(log.calls.back().what, format::kLogVerify);
  EXPECT_EQ(log.calls.back().outcome, format::kLogFailed);
}

/// For Cairn's own files, whose length may be damaged, verify applies the same size limits as a load.
TEST(Integrity, FilesBeyondTheLimitsAreFaultsAndAreNotRead) {
  const TempDir root;
  save_simulated(root.path(), 1, Cut::kRows, 1);
  const fs::path directory = root / "checkpoint-1";
  for (const auto& [name, limit] : {std::pair(format::kBlocksFile, format::limits::kBlockTableBytes),
                                    std::pair(format::kManifestFile, format::limits::kManifestBytes)}) {
    fs::resize_file(directory / name, limit + 1);  // sparse, without using storage
    const auto result = verify_simulated(directory, 1);
    const auto is_named = [&, file = std::string(name)](const checkpoint::Fault& fault) {
      return fault.file == file && fault.message.find("at most") != std::string::npos;
    };
    EXPECT_TRUE(std::ranges::any_of(result.faults, is_named)) << name;
  }
}

TEST(Integrity, AHundredFlippedBitsAreEachFoundAndNamed) {
  const TempDir root;
  save_simulated(root.path(), 1, Cut::kMixed, 2);
  const auto opened = opening::open_here(root / "checkpoint-1");
  std::uint64_t bytes = 0;
  for (const auto& file : opened.stored.files) bytes += file.size_bytes;
  auto random = make_random();
  int in_tensors = 0;
  for (int i = 0; i < 100; ++i) {
    std::uint64_t bit = uniform(random, 0, bytes * 8 - 1);
    std::uint32_t file = 0;
    for (; bit >= opened.stored.files[file].size_bytes * 8; ++file) bit -= opened.stored.files[file].size_bytes * 8;
    const fs::path path = root / "checkpoint-1" / opened.stored.files[file].name;
    SCOPED_TRACE(path.string() + " bit " + std::to_string(bit));
    flip_bit(path, bit);
    const auto result = verify_simulated(root / "checkpoint-1", 1);
    const auto found = std::find_if(result.faults.begin(), result.faults.end(), [&](const checkpoint::Fault& fault) {
      return fault.has_block && fault.file == opened.stored.files[file].name && fault.block == bit / 8 / 4096;
    });
    ASSERT_NE(found, result.faults.end());
    const auto names = opening::tensors_in(opened.stored, {file, bit / 8, bit / 8 + 1});
    if (!names.empty()) {
      ++in_tensors;
      EXPECT_EQ(std::count(found->tensors.begin(), found->tensors.end(), names[0]), 1);
    }
    flip_bit(path, bit);
  }
  EXPECT_GT(in_tensors, 50);
  EXPECT_TRUE(verify_simulated(root / "checkpoint-1", 1).faults.empty());
}

TEST(Integrity, ADamagedBlockIsNotLoaded) {
  const TempDir root;
  save_simulated(root.path(), 1, Cut::kMixed, 2);
  const auto opened = opening::open_here(root / "checkpoint-1");
  const std::uint64_t size = opened.stored.files[0].size_bytes;
  flip_bit(root / "checkpoint-1" / opened.stored.files[0].name, (size - 5) * 8);
  try {
    expect_loads(root / "checkpoint-1", 1, Cut::kRows, 3);
    ADD_FAILURE() << "damaged bytes were loaded";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kIntegrity);
    EXPECT_NE(std::string(error.what()).find(opened.stored.files[0].name), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("block " + std::to_string((size - 1) / 4096)), std::string::npos)
        << error.what();
  }
}

/// Result of listing the root, which checks the content of cairn.json, but only the sizes of other files.
enum class Listed { kComplete, kDamaged };

/// Expects verify to report the damage as one fault that names file and cause, and the listing to give `listed`.
template <class Spoil>
void expect_fault(const std::string& file, const std::string& what, Listed listed, Spoil spoil) {
  SCOPED_TRACE(file + ": " + what);
  const TempDir root;
  save_simulated(root.path(), 1, Cut::kMixed, 2);
  spoil(root / "checkpoint-1");
  const auto result = verify_simulated(root / "checkpoint-1", 2);
  ASSERT_EQ(result.faults.size(), 1U);
  EXPECT_THAT(result.faults[0].message, testing::AllOf(testing::HasSubstr(file), testing::HasSubstr(what)));
  const auto entries = root::list_root(root.path());
  ASSERT_EQ(entries.size(), 1U);
  EXPECT_EQ(entries[0].is_complete(), listed == Listed::kComplete) << entries[0].problem;
}

fs::path first_model_file(const fs::path& directory) {
  for (const auto& file : opening::open_here(directory).stored.files) {
    if (file.name.starts_with("model-00001-of")) return directory / file.name;
  }
  throw std::runtime_error("no first model file");
}

TEST(Integrity, EveryOtherFaultIsNamed) {
  expect_fault("model-00001-of", "is missing", Listed::kDamaged,
               [](const fs::path& d) { fs::remove(first_model_file(d)); });
  expect_fault("model-00001-of", "has 5000 bytes", Listed::kDamaged,
               [](const fs::path& d) { fs::resize_file(first_model_file(d), 5000); });
  expect_fault("cairn.blocks", "has checksum", Listed::kComplete,
               [](const fs::path& d) { flip_bit(d / "cairn.blocks", 300); });
  expect_fault("cairn.blocks", "No such file", Listed::kDamaged,
               [](const fs::path& d) { fs::remove(d / "cairn.blocks"); });
  expect_fault("cairn.json", "", Listed::kDamaged, [](const fs::path& d) { write_file(d / "cairn.json", "{"); });
  expect_fault("cairn.json", "has checksum", Listed::kDamaged, [](const fs::path& d) {
    const std::string text = read_file(d / "cairn.json");
    flip_bit(d / "cairn.json", 8 * (text.find("\"run_id\": \"test\"") + 12));  // another run id
  });
  expect_fault("model-00001-of", "cairn.json names checksum", Listed::kComplete, [](const fs::path& d) {
    auto manifest = format::parse_manifest(read_file(d / "cairn.json"), "cairn.json");
    for (auto& file : manifest.data_files) file.crc32c ^= file.name.starts_with("model-00001-of") ? 1U : 0U;
    write_file(d / "cairn.json", format::encode_manifest(manifest));
  });
  expect_fault("model.safetensors.index.json", "damaged", Listed::kComplete,
               [](const fs::path& d) { flip_bit(d / "model.safetensors.index.json", 1000); });
  expect_fault("model-00001-of-00099", "", Listed::kComplete,
               [](const fs::path& d) { fs::copy(first_model_file(d), d / "model-00001-of-00099.safetensors"); });
}

}  // namespace
}  // namespace cairn::test
