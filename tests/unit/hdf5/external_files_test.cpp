// Plain files through HDF5: only the bytes that were written, nothing else on disk, relative paths, large offsets.
#include "hdf5/external_files.hpp"

#include <gtest/gtest.h>

#include <filesystem>

#include "cairn/error.hpp"
#include "environment.hpp"
#include "hdf5/library.hpp"
#include "os/file.hpp"
#include "random.hpp"
#include "temp_dir.hpp"

namespace cairn::hdf5 {
namespace {

class ExternalFilesTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!is_available()) GTEST_SKIP() << "this build has no HDF5";
  }
  std::filesystem::path make(const char* name, std::uint64_t bytes) {
    os::File file(directory_ / name, os::OpenMode::kCreateNew);
    file.set_size(bytes);
    return directory_ / name;
  }
  test::TempDir directory_;
};

TEST_F(ExternalFilesTest, WriteAndReadPlainBytes) {
  ExternalFiles files;
  auto random = test::make_random();
  const auto data = test::random_bytes(random, 70'000);
  const std::size_t a = files.add(make("a", 100'000), 100'000);
  const std::size_t b = files.add(make("b:c %s", 70'000), 70'000);
  files.write_at(a, data, 30'000);
  files.write_at(b, data, 0);
  EXPECT_EQ(test::read_file(directory_ / "a"),
            std::string(30'000, '\0') + std::string(reinterpret_cast<const char*>(data.data()), data.size()));
  std::vector<std::byte> found(data.size() - 5);
  files.read_at(b, found, 5);
  EXPECT_TRUE(std::equal(found.begin(), found.end(), data.begin() + 5));
  EXPECT_EQ(os::list_directory(directory_.path()).size(), 2U) << "nothing else may lie on disk";
}

TEST_F(ExternalFilesTest, SeveralAtOnce) {
  ExternalFiles one;
  ExternalFiles other;
  const auto path = make("f", 10);
  const std::vector<std::byte> data(10, std::byte{5});
  const std::size_t writer = one.add(path, 10);
  const std::size_t reader = other.add(path, 10);
  one.write_at(writer, data, 0);
  std::vector<std::byte> found(10);
  other.read_at(reader, found, 0);
  EXPECT_TRUE(found == data);
}

TEST_F(ExternalFilesTest, TakeRelativePaths) {
  make("relative", 10);
  const auto before = std::filesystem::current_path();
  std::filesystem::current_path(directory_.path());
  ExternalFiles files;
  const std::size_t number = files.add("relative", 10);
  std::filesystem::current_path(before);  // the place is that of the moment it was added
  const std::vector<std::byte> data(10, std::byte{7});
  files.write_at(number, data, 0);
  EXPECT_EQ(test::read_file(directory_ / "relative"), std::string(10, '\7'));
}

TEST_F(ExternalFilesTest, ReachBeyond4GiB) {
  constexpr std::uint64_t kBytes = 5'000'000'000;
  ExternalFiles files;
  const std::size_t number = files.add(make("large", kBytes), kBytes);
  const std::vector<std::byte> data(1000, std::byte{9});
  files.write_at(number, data, kBytes - 1000);
  std::vector<std::byte> found(1000);
  files.read_at(number, found, kBytes - 1000);
  EXPECT_TRUE(found == data);
}

}  // namespace
}  // namespace cairn::hdf5
