// Staging files on one rank: every dtype, odd names and shapes, offsets beyond 4 GiB, and the same bytes every time.
#include "hdf5/stage_file.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "cairn/error.hpp"
#include "environment.hpp"
#include "format/safetensors.hpp"
#include "hdf5/library.hpp"
#include "os/fault.hpp"
#include "os/file.hpp"
#include "random.hpp"
#include "temp_dir.hpp"

namespace cairn::hdf5 {
namespace {

using testing::HasSubstr;

class StageFileTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!is_available()) GTEST_SKIP() << "this build has no HDF5";
  }
  ~StageFileTest() override { os::set_faults(""); }

  /// Writes a staging file whose tensors hold random bytes, and keeps them.
  format::StoredCheckpoint write(const std::vector<format::StoredTensor>& tensors, std::uint64_t align_bytes = 4096) {
    StageContent content;
    content.tensors = tensors;
    content.manifest = "{}";
    content.align_bytes = align_bytes;
    const format::StoredCheckpoint stored = write_skeleton(path_, content);
    os::File file(path_, os::OpenMode::kWrite);
    auto random = test::make_random();
    content_.clear();
    for (const auto& tensor : stored.tensors) {
      content_.push_back(test::random_bytes(random, format::tensor_bytes(tensor.dtype, tensor.shape, tensor.name)));
      file.write_at(content_.back(), tensor.boxes.at(0).offset_bytes);
    }
    return stored;
  }

  test::TempDir directory_;
  std::filesystem::path path_ = directory_ / "state.h5";
  std::vector<std::vector<std::byte>> content_;  // content of each tensor
};

std::string error_of(const std::function<void()>& work, ErrorKind kind) {
  try {
    work();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "no error";
  return "";
}

TEST_F(StageFileTest, HoldsEveryDtype) {
  std::vector<format::StoredTensor> tensors;
  for (int i = 0; i < kDTypeCount; ++i) {
    const auto dtype = static_cast<DType>(i);
    tensors.push_back({"model", std::string(name_of(dtype)), dtype, {3, 8}, {}});
  }
  const auto stored = write(tensors);
  const StageDescription found = describe_stage(path_);
  ASSERT_EQ(found.stored.tensors.size(), static_cast<std::size_t>(kDTypeCount));
  StageFile file(path_, found.stored.files.at(0).size_bytes);
  int compared = 0;
  for (const auto& tensor : found.stored.tensors) {
    const auto number = static_cast<std::size_t>(tensor.dtype);
    EXPECT_EQ(tensor.name, name_of(tensor.dtype));
    EXPECT_EQ(tensor.shape, (std::vector<std::uint64_t>{3, 8}));
    EXPECT_EQ(tensor.boxes.at(0).offset_bytes, stored.tensors[number].boxes.at(0).offset_bytes);
    std::vector<std::byte> memory(content_[number].size());
    if (bits_of(tensor.dtype) < 8) {
      file.read_packed(tensor, 0, memory);
    } else {
      file.read_box(tensor, {{0, 0}, {3, 8}}, memory);
    }
    EXPECT_TRUE(memory == content_[number]) << tensor.name;
    ++compared;
  }
  EXPECT_EQ(compared, kDTypeCount);
}

TEST_F(StageFileTest, ReadsHyperslabs) {
  const auto stored = write({{"model", "t", DType::kI32, {5, 6, 7}, {}}});
  StageFile file(path_, stored.files.at(0).size_bytes);
  const Box box{{1, 2, 3}, {3, 2, 4}};
  std::vector<std::byte> memory(3 * 2 * 4 * 4);
  file.read_box(stored.tensors[0], box, memory);
  std::size_t at = 0;
  for (std::uint64_t i = 1; i < 4; ++i) {
    for (std::uint64_t j = 2; j < 4; ++j) {
      for (std::uint64_t k = 3; k < 7; ++k) {
        const std::uint64_t element = ((i * 6) + j) * 7 + k;
        for (std::uint64_t b = 0; b < 4; ++b) EXPECT_EQ(memory[at++], content_[0][element * 4 + b]);
      }
    }
  }
  EXPECT_EQ(at, memory.size());
}

TEST_F(StageFileTest, HoldsOddNamesAndShapes) {
  const std::string long_name(3000, 'x');
  const std::vector<format::StoredTensor> tensors = {
      {"cairn", "a", DType::kF32, {2}, {}},        {"model", "a/b", DType::kF32, {2}, {}},
      {"model", "a", DType::kF32, {2}, {}},        {"model", ".", DType::kF32, {2}, {}},
      {"model", "", DType::kF32, {2}, {}},         {"model", "\xC3\xA4\xE2\x82\xAC 100%", DType::kF32, {2}, {}},
      {"model", long_name, DType::kF32, {2}, {}},  {"model", "scalar", DType::kF64, {}, {}},
      {"model", "empty", DType::kF16, {0, 7}, {}}, {"model", "deep", DType::kU8, {1, 1, 1, 1, 1, 1, 1, 1, 2}, {}},
  };
  write(tensors);
  const StageDescription found = describe_stage(path_);
  ASSERT_EQ(found.stored.tensors.size(), tensors.size());
  StageFile file(path_, found.stored.files.at(0).size_bytes);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const auto at = std::find_if(found.stored.tensors.begin(), found.stored.tensors.end(), [&](const auto& tensor) {
      return tensor.section == tensors[i].section && tensor.name == tensors[i].name;
    });
    ASSERT_NE(at, found.stored.tensors.end()) << tensors[i].name;
    EXPECT_EQ(at->shape, tensors[i].shape);
    if (content_[i].empty()) continue;
    std::vector<std::byte> memory(content_[i].size());
    file.read_box(*at, at->boxes.at(0).box, memory);
    EXPECT_TRUE(memory == content_[i]) << tensors[i].name;
  }
}

TEST_F(StageFileTest, AlignsLargeTensors) {
  std::vector<format::StoredTensor> tensors;
  for (int i = 0; i < 20; ++i) {
    tensors.push_back({"model", "large" + std::to_string(i), DType::kU8, {1'100'001}, {}});
    tensors.push_back({"model", "small" + std::to_string(i), DType::kU8, {33}, {}});
  }
  const auto stored = write(tensors, 65536);
  for (const auto& tensor : stored.tensors) {
    if (tensor.shape[0] < 16 * 65536) continue;
    EXPECT_EQ(tensor.boxes.at(0).offset_bytes % 65536, 0U) << tensor.name;
  }
  EXPECT_LT(stored.files.at(0).size_bytes, 20U * 1'100'001 * 107 / 100 + (2U << 20));
}

TEST_F(StageFileTest, TheSameContentGivesTheSameBytes) {
  const std::vector<format::StoredTensor> tensors = {{"model", "a", DType::kBF16, {300, 300}, {}},
                                                     {"optimizer", "a/m", DType::kF32, {7}, {}}};
  write(tensors);
  const std::string first = test::read_file(path_);
  std::filesystem::remove(path_);
  write(tensors);
  EXPECT_TRUE(test::read_file(path_) == first);
}

TEST_F(StageFileTest, CarriesFilesAndAttributes) {
  StageContent content;
  content.manifest = "{\"a\": 1}";
  content.carried["config.json"] = base::Bytes(70'000, std::byte{'{'});
  content.carried["empty.txt"] = base::Bytes();
  write_skeleton(path_, content);
  const StageDescription found = describe_stage(path_);
  EXPECT_EQ(found.manifest, content.manifest);
  EXPECT_EQ(found.carried, (std::map<std::string, std::uint64_t>{{"config.json", 70'000}, {"empty.txt", 0}}));
  StageFile file(path_, found.stored.files.at(0).size_bytes);
  EXPECT_TRUE(file.read_carried("config.json") == base::Bytes(70'000, std::byte{'{'}));
  EXPECT_TRUE(file.read_carried("empty.txt").empty());
}

// One dataset above 4 GiB, and one above 2 GiB that begins beyond 4 GiB; all data but the bytes read are holes on disk.
TEST_F(StageFileTest, ReadsBeyond2And4GiB) {
  constexpr std::uint64_t kRows = 1'300'000;
  constexpr std::uint64_t kColumns = 1024;
  StageContent content;
  content.tensors = {{"model", "a", DType::kF32, {kRows, kColumns}, {}}, {"model", "b", DType::kU8, {1000}, {}}};
  content.tensors.push_back({"model", "c", DType::kBF16, {2'000'000'000}, {}});
  content.manifest = "{}";
  const auto stored = write_skeleton(path_, content);
  const std::uint64_t begin_a = stored.tensors[0].boxes.at(0).offset_bytes;
  const std::uint64_t begin_c = stored.tensors[2].boxes.at(0).offset_bytes;
  const std::uint64_t a_bytes = kRows * kColumns * 4;
  EXPECT_GT(a_bytes, 1ULL << 32);
  EXPECT_GT(begin_c, 1ULL << 32);
  auto random = test::make_random();
  const auto expected = test::random_bytes(random, 3 * kColumns * 4);
  const auto last = test::random_bytes(random, 2000);
  os::File file(path_, os::OpenMode::kWrite);
  file.write_at(expected, begin_a + a_bytes - expected.size());
  file.write_at(last, begin_c + 4'000'000'000 - last.size());
  file.close();

  StageFile reader(path_, describe_stage(path_).stored.files.at(0).size_bytes);
  std::vector<std::byte> rows(expected.size());
  reader.read_box(stored.tensors[0], {{kRows - 3, 0}, {3, kColumns}}, rows);
  EXPECT_TRUE(rows == expected);
  std::vector<std::byte> column(3 * 4);
  reader.read_box(stored.tensors[0], {{kRows - 3, kColumns - 1}, {3, 1}}, column);
  for (std::size_t row = 0; row < 3; ++row) {
    for (std::size_t b = 0; b < 4; ++b) EXPECT_EQ(column[row * 4 + b], expected[(row + 1) * kColumns * 4 - 4 + b]);
  }
  std::vector<std::byte> end(last.size());
  reader.read_box(stored.tensors[2], {{2'000'000'000 - 1000}, {1000}}, end);
  EXPECT_TRUE(end == last);
}

TEST_F(StageFileTest, RefusesWhatHdf5CannotHold) {
  const std::vector<std::uint64_t> deep(33, 1);
  EXPECT_THAT(error_of(
                  [&] {
                    write({{"model", "deep", DType::kF32, deep, {}}});
                  },
                  ErrorKind::kUsage),
              HasSubstr("'deep' has 33 dimensions, HDF5 holds at most 32"));
  std::filesystem::remove(path_);
  EXPECT_THAT(error_of(
                  [&] {
                    write({{"model", std::string("a\0b", 3), DType::kF32, {1}, {}}});
                  },
                  ErrorKind::kUsage),
              HasSubstr("NUL"));
  std::filesystem::remove(path_);
  test::write_file(path_, "something");
  EXPECT_THAT(error_of([&] { write({}); }, ErrorKind::kIo), HasSubstr("state.h5"));
  EXPECT_EQ(test::read_file(path_), "something");
}

TEST_F(StageFileTest, ReportsFaultsAndAFileCutShort) {
  const auto stored = write({{"model", "t", DType::kU8, {200'000}, {}}});
  const std::uint64_t size = stored.files.at(0).size_bytes;
  std::vector<std::byte> memory(200'000);
  const Box box{{0}, {200'000}};
  os::set_faults("open:errno=EACCES");
  EXPECT_THAT(error_of([&] { StageFile(path_, size); }, ErrorKind::kIo), HasSubstr("Permission denied"));
  os::set_faults("read:errno=EINTR;read:errno=EIO:after=1");
  StageFile file(path_, size);
  const auto read = [&] { file.read_box(stored.tensors[0], box, memory); };
  EXPECT_THAT(error_of(read, ErrorKind::kIo), HasSubstr("Input/output error"));
  os::set_faults("");
  read();
  EXPECT_TRUE(memory == content_[0]);
  std::filesystem::resize_file(path_, size - 100);
  EXPECT_THAT(error_of(read, ErrorKind::kIo), HasSubstr("expected " + std::to_string(size)));
  EXPECT_THAT(error_of([&] { StageFile(path_, size); }, ErrorKind::kIntegrity), HasSubstr("expected"));
}

}  // namespace
}  // namespace cairn::hdf5
