// Files that are damaged or not staging files: an error of one line, never a crash or bytes from elsewhere.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "cairn/error.hpp"
#include "environment.hpp"
#include "hdf5/library.hpp"
#include "hdf5/stage_file.hpp"
#include "os/file.hpp"
#include "random.hpp"
#include "temp_dir.hpp"

namespace cairn::hdf5 {
namespace {

using testing::HasSubstr;

class StageDamage : public testing::Test {
 protected:
  void SetUp() override {
    if (!is_available()) GTEST_SKIP() << "this build has no HDF5";
    StageContent content;
    content.manifest = "{}";
    content.carried["config.json"] = base::Bytes(100, std::byte{'x'});
    for (int i = 0; i < 40; ++i) {
      content.tensors.push_back({"model", "layer." + std::to_string(i), DType::kBF16, {40, 50}, {}});
    }
    stored_ = write_skeleton(path_, content);
    good_ = test::read_file(path_);
  }

  /// The error of describe_stage for the current file; empty if there is none.
  [[nodiscard]] std::string verdict() const {
    try {
      static_cast<void>(describe_stage(path_));
      return "";
    } catch (const Error& error) {
      EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << error.what();
      EXPECT_TRUE(error.kind() == ErrorKind::kFormat || error.kind() == ErrorKind::kIntegrity) << error.what();
      EXPECT_THAT(error.what(), HasSubstr("state.h5"));
      return error.what();
    }
  }

  test::TempDir directory_;
  std::filesystem::path path_ = directory_ / "state.h5";
  format::StoredCheckpoint stored_;
  std::string good_;
};

TEST_F(StageDamage, OtherFilesAreRefused) {
  EXPECT_EQ(verdict(), "");
  EXPECT_TRUE(looks_like_hdf5(path_));
  test::write_file(path_, "");
  EXPECT_FALSE(looks_like_hdf5(path_));
  EXPECT_NE(verdict(), "");
  test::write_file(path_, std::string(10'000, 'a'));
  EXPECT_FALSE(looks_like_hdf5(path_));
  EXPECT_NE(verdict(), "");
  EXPECT_FALSE(looks_like_hdf5(directory_ / "missing"));
}

TEST_F(StageDamage, AFileCutShortIsRefused) {
  for (const std::size_t size : {good_.size() - 1, good_.size() / 2, std::size_t{100}, std::size_t{8}}) {
    test::write_file(path_, good_.substr(0, size));
    EXPECT_THAT(verdict(), HasSubstr("HDF5: ")) << size;
  }
}

// Checksums cover the metadata: a flipped bit in it is found. The tensors' bytes are not metadata.
TEST_F(StageDamage, FlippedBitsAreFoundOrHarmless) {
  std::vector<bool> is_data(good_.size(), false);
  for (const auto& tensor : stored_.tensors) {
    for (std::size_t i = 0; i < 4000; ++i) is_data[tensor.boxes.at(0).offset_bytes + i] = true;
  }
  std::vector<std::size_t> places;  // mostly metadata in use
  for (std::size_t at = 0; at < good_.size(); ++at) {
    if (!is_data[at] && good_[at] != 0) places.push_back(at);
  }
  ASSERT_GT(places.size(), 1000U);
  auto random = test::make_random();
  constexpr int kTries = 300;
  int found = 0;
  for (int i = 0; i < kTries; ++i) {
    const std::size_t at = places[test::uniform(random, 0, places.size() - 1)];
    std::string bad = good_;
    bad[at] = static_cast<char>(bad[at] ^ (1 << test::uniform(random, 0, 7)));
    test::write_file(path_, bad);
    found += verdict().empty() ? 0 : 1;  // the other flips hit unused space or a carried file
  }
  EXPECT_GT(found, kTries / 2);
}

}  // namespace
}  // namespace cairn::hdf5
