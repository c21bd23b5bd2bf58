// Converting and comparing coded checkpoints: conversions that keep codes keep their metadata, and all others write
// decoded values; comparisons see values in both cases, within a tolerance.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "cairn/error.hpp"
#include "coded_state.hpp"
#include "conversion/convert.hpp"
#include "conversion/diff.hpp"
#include "environment.hpp"
#include "nlohmann/json.hpp"
#include "root/root.hpp"
#include "signed_manifest.hpp"
#include "simulated.hpp"
#include "temp_dir.hpp"

namespace cairn::test {
namespace {

namespace fs = std::filesystem;
using conversion::TensorVerdict;
using testing::HasSubstr;

conversion::ConvertOptions converting(const std::string& quant) {
  conversion::ConvertOptions options;
  options.write.engine.name = "posix";
  options.write.files.block_bytes = 4096;
  options.write.files.max_bytes = 60'000;
  options.read.engine = "posix";
  options.quant = quant;
  return options;
}

std::vector<std::string> convert_on(int ranks, const fs::path& from, const fs::path& to,
                                    const conversion::ConvertOptions& options) {
  std::vector<std::string> notes;
  comm::run_simulated(ranks, [&](comm::Communicator& communicator) {
    auto report = conversion::convert(communicator, from, to, options);
    if (communicator.rank() == 0) notes = std::move(report.notes.lines);
  });
  return notes;
}

conversion::DiffResult diff_on(int ranks, const fs::path& a, const fs::path& b, conversion::Tolerance tolerance = {},
                               std::uint64_t memory_bytes = 32 << 20) {
  conversion::DiffResult result;
  comm::run_simulated(ranks, [&](comm::Communicator& communicator) {
    auto mine = conversion::diff(communicator, a, b, {{"posix", memory_bytes, {}}, tolerance, false});
    if (communicator.rank() == 0) result = std::move(mine);
  });
  return result;
}

/// Expects each of these sections to have exactly the tensors of `truth`, bit for bit.
void expect_holds(const fs::path& directory, const Truth& truth, std::initializer_list<std::string> sections) {
  for (const std::string& section : sections) {
    const FileTensors found = read_section(directory, section);
    std::size_t compared = 0;
    for (const auto& [key, bytes] : truth) {
      if (key.first != section) continue;
      ASSERT_TRUE(found.contains(key.second)) << section << " " << key.second;
      EXPECT_EQ(found.at(key.second).bytes, bytes) << section << " " << key.second;
      ++compared;
    }
    EXPECT_GT(compared, 0U);
    EXPECT_EQ(compared, found.size()) << section;
  }
}

TEST(CodedConvert, KeptCodesAreTheSameBytesAndStillSayWhatTheyAre) {
  const TempDir root;
  const Truth truth = write_state(root / "source", quant::Division::kTrue);
  for (const int ranks : {1, 3}) {
    const fs::path kept = root / ("kept" + std::to_string(ranks));
    EXPECT_THAT(convert_on(ranks, root / "source", kept, converting("keep")), testing::IsEmpty());
    EXPECT_EQ(read_section(kept, "optimizer"), read_section(root / "source", "optimizer"));
    const opening::OpenCheckpoint opened = opening::open_here(kept);
    EXPECT_EQ(opened.quantised.size(), 11U);
    ASSERT_TRUE(opened.manifest);
    EXPECT_TRUE(opened.manifest->quantisation.contains("optimizer"));
    const auto same = diff_on(ranks, root / "source", kept);
    EXPECT_TRUE(same.equal());
    EXPECT_EQ(same.tensors, 25U);
    const fs::path decoded = root / ("decoded" + std::to_string(ranks));
    convert_on(ranks, kept, decoded, converting("off"));
    expect_holds(decoded, truth, {"optimizer", "model"});
    EXPECT_TRUE(opening::open_here(decoded).quantised.empty());
    EXPECT_TRUE(opening::open_here(decoded).manifest->quantisation.empty());
    EXPECT_TRUE(diff_on(ranks, kept, decoded).equal());
  }
}

TEST(CodedConvert, DecodesByEitherRuleOfDivision) {
  const TempDir root;
  const Truth truth = write_state(root / "source", quant::Division::kReciprocal);
  auto options = converting("off");
  options.decode_by_reciprocals = true;
  convert_on(2, root / "source", root / "decoded", options);
  expect_holds(root / "decoded", truth, {"optimizer"});
  const auto other = diff_on(2, root / "source", root / "decoded");
  EXPECT_FALSE(other.equal());
  EXPECT_TRUE(diff_on(2, root / "source", root / "decoded", {1e-5, 0}).close());
}

TEST(CodedConvert, ShardsHoldValues) {
  const TempDir root;
  write_state(root / "source", quant::Division::kTrue);
  auto options = converting("keep");
  options.to = "shards";
  options.layout = "fsdp=3";
  const auto notes = convert_on(2, root / "source", root / "shards", options);
  EXPECT_THAT(notes, testing::Contains(HasSubstr("22 tensors are decoded")));
  EXPECT_TRUE(diff_on(2, root / "source", root / "shards").equal());
  options.quant = "off";
  EXPECT_THAT(convert_on(2, root / "source", root / "again", options),
              testing::Not(testing::Contains(HasSubstr("decoded"))));
}

TEST(CodedConvert, AnUnknownCodecIsRefused) {
  const TempDir root;
  write_state(root / "source", quant::Division::kTrue);
  EXPECT_THROW(convert_on(2, root / "source", root / "out", converting("q9")), Error);
  EXPECT_FALSE(fs::exists(root / "out"));
}

TEST(Rebuilt, ElidedWeightsComeBack) {
  const TempDir root;
  const Truth truth = write_state(root / "source", quant::Division::kTrue);
  convert_on(2, root / "source", root / "kept", converting("keep"));
  const fs::path manifest = root / "kept" / format::kManifestFile;
  nlohmann::json json = nlohmann::json::parse(read_file(manifest));
  json["rebuilt"] = {{"master_weights", {{"from", "model"}, {"dtype", "F32"}}}};
  write_file(manifest, signed_manifest(json));
  convert_on(3, root / "kept", root / "again", converting("keep"));
  EXPECT_EQ(nlohmann::json::parse(read_file(root / "again" / format::kManifestFile))["rebuilt"], json["rebuilt"]);
  convert_on(3, root / "again", root / "whole", converting("off"));
  const FileTensors made = read_section(root / "whole", "master_weights");
  ASSERT_EQ(made.size(), 1U);  // the model's F32 tensor has no master weight
  EXPECT_EQ(made.at("w").dtype, DType::kF32);
  EXPECT_EQ(made.at("w").bytes, truth.at({"master_weights", "w"}));
  EXPECT_FALSE(nlohmann::json::parse(read_file(root / "whole" / format::kManifestFile)).contains("rebuilt"));
  EXPECT_TRUE(diff_on(2, root / "again", root / "whole").equal());

  json["rebuilt"] = 7;
  write_file(manifest, signed_manifest(json));
  EXPECT_THROW(diff_on(2, root / "kept", root / "whole"), Error);
}

TEST(Rebuilt, ModelWeightsAreRounded) {
  const TempDir root;
  auto random = make_random(5);
  FileTensors master;
  master["w"] = {DType::kF32, {300, 70}, random_floats(random, 21'000, DType::kF32)};
  fs::create_directories(root / "source");
  write_safetensors(root / "source" / "master_weights.safetensors", master, {});
  write_safetensors(root / "source" / "model.safetensors", {{"n", {DType::kI64, {1}, base::Bytes(8)}}}, {});
  convert_on(1, root / "source", root / "kept", converting("keep"));
  const fs::path manifest = root / "kept" / format::kManifestFile;
  nlohmann::json json = nlohmann::json::parse(read_file(manifest));
  json["rebuilt"] = {{"model", {{"from", "master_weights"}, {"dtype", "BF16"}}}};
  write_file(manifest, signed_manifest(json));
  convert_on(3, root / "kept", root / "whole", converting("off"));
  base::Bytes expected(42'000);
  quant::cast_values(DType::kF32, master["w"].bytes, DType::kBF16, expected);
  const FileTensors model = read_section(root / "whole", "model");
  ASSERT_EQ(model.size(), 2U);
  EXPECT_EQ(model.at("w"), (FileTensor{DType::kBF16, {300, 70}, expected}));
}

/// A directory with one F32 tensor.
fs::path with_values(const fs::path& directory, const std::vector<float>& values) {
  fs::create_directories(directory);
  const auto bytes = std::as_bytes(std::span(values));
  write_safetensors(directory / "model.safetensors",
                    {{"w", {DType::kF32, {values.size()}, {bytes.begin(), bytes.end()}}}}, {});
  return directory;
}

TEST(Tolerance, IsOfTheSecondValue) {
  const TempDir root;
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinity = std::numeric_limits<float>::infinity();
  const fs::path a = with_values(root / "a", {1.0F, 100.0F, 0.0F, -0.0F, nan, infinity, 5.0F, -8.0F});
  const fs::path b = with_values(root / "b", {1.5F, 104.0F, 0.25F, 0.0F, nan, infinity, 5.0F, -8.5F});
  const auto outside = [&](double relative, double absolute) {
    const auto result = diff_on(2, a, b, {relative, absolute});
    EXPECT_EQ(result.differences.at(0).elements_differing, 5U);
    EXPECT_EQ(result.close(), result.differences.at(0).elements_outside == 0);
    EXPECT_FALSE(result.equal());
    return result.differences.at(0).elements_outside;
  };
  EXPECT_EQ(outside(0, 0), 5U);
  EXPECT_EQ(outside(0, 0.25), 3U);
  EXPECT_EQ(outside(0, 0.5), 1U);
  EXPECT_EQ(outside(0, 4), 0U);
  EXPECT_EQ(outside(0.04, 0), 3U);  // 1 and 1.5, 0 and 0.25, -8 and -8.5
  EXPECT_EQ(outside(0.04, 0.25), 1U);
  EXPECT_EQ(outside(0.05, 0.45), 0U);
  const auto close = diff_on(2, a, b, {0, 4});
  EXPECT_EQ(close.differences.at(0).verdict, TensorVerdict::kClose);
  EXPECT_EQ(close.differences.at(0).max_abs_difference, conversion::Difference(4.0));
}

TEST(Tolerance, NothingIsCloseToNanOrInfinity) {
  const TempDir root;
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinity = std::numeric_limits<float>::infinity();
  const fs::path a = with_values(root / "a", {1.0F, nan, infinity, 1.0F, -infinity});
  const fs::path b = with_values(root / "b", {nan, 1.0F, 1.0F, infinity, infinity});
  EXPECT_EQ(diff_on(1, a, b, {1e9, 1e9}).differences.at(0).elements_outside, 5U);
}

TEST(Tolerance, WrongOnesAreRefused) {
  const TempDir root;
  const fs::path a = with_values(root / "a", {1.0F});
  for (const double wrong : {-1.0, std::nan(""), std::numeric_limits<double>::infinity()}) {
    EXPECT_THROW(diff_on(2, a, a, {wrong, 0}), Error);
    EXPECT_THROW(diff_on(2, a, a, {0, wrong}), Error);
  }
}

}  // namespace
}  // namespace cairn::test
