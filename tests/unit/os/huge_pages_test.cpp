// The kernel's settings of huge pages, and memory files that get them.
#include "os/huge_pages.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <fstream>
#include <sstream>
#include <string>

#include "temp_dir.hpp"

namespace cairn::os {
namespace {

class HugePageSettings : public testing::Test {
 protected:
  void set(const char* name, const char* line) const {
    const auto path = folder_.path() / name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << line << '\n';
  }
  [[nodiscard]] HugePages found() const { return huge_pages(folder_.path()); }

 private:
  test::TempDir folder_;
};

TEST_F(HugePageSettings, WithoutThemThereAreNone) { EXPECT_EQ(found(), (HugePages{false, false})); }

TEST_F(HugePageSettings, CountWhereAdviceIsTaken) {
  set("enabled", "always [madvise] never");
  set("shmem_enabled", "always within_size advise [never] deny force");
  EXPECT_EQ(found(), (HugePages{true, false}));
  set("enabled", "[always] madvise never");
  set("shmem_enabled", "always within_size [advise] never deny force");
  EXPECT_EQ(found(), (HugePages{true, true}));
  set("enabled", "always madvise [never]");
  set("shmem_enabled", "always within_size advise never [deny] force");
  EXPECT_EQ(found(), (HugePages{false, false}));
}

TEST_F(HugePageSettings, OfTheSizeComeFirst) {
  set("enabled", "always [madvise] never");
  set("shmem_enabled", "always within_size advise [never] deny force");
  set("hugepages-2048kB/enabled", "always [inherit] madvise never");
  set("hugepages-2048kB/shmem_enabled", "always inherit within_size [advise] never");
  EXPECT_EQ(found(), (HugePages{true, true}));
  set("hugepages-2048kB/enabled", "always inherit madvise [never]");
  EXPECT_EQ(found(), (HugePages{false, true}));
}

constexpr std::uint64_t kTwoUnitsAndAPage = 2 * kHugePageBytes + 4096;

/// A memory file of two units of 2 MiB and one more page.
class MemoryFile : public testing::Test {
 protected:
  MemoryFile() : descriptor_(::memfd_create("test", MFD_CLOEXEC)) {
    if (::ftruncate(descriptor_, static_cast<off_t>(kTwoUnitsAndAPage)) == 0)
      data_ = map_memory_file(descriptor_, kTwoUnitsAndAPage);
  }
  ~MemoryFile() override {
    if (data_ != nullptr) ::munmap(data_, kTwoUnitsAndAPage);
    ::close(descriptor_);
  }
  /// Bytes of this mapping in huge pages, according to the kernel (proc_pid_smaps(5)).
  [[nodiscard]] std::uint64_t bytes_in_huge_pages() const {
    std::ifstream in("/proc/self/smaps");
    std::ostringstream begin;
    begin << std::hex << reinterpret_cast<std::uintptr_t>(data_) << '-';
    bool here = false;
    for (std::string line; std::getline(in, line);) {
      here = here || line.starts_with(begin.str());
      unsigned long long kib = 0;
      if (here && std::sscanf(line.c_str(), "ShmemPmdMapped: %llu kB", &kib) == 1) return kib << 10;
    }
    ADD_FAILURE() << "no mapping at " << begin.str();
    return 0;
  }

  int descriptor_;
  std::byte* data_ = nullptr;
};

TEST_F(MemoryFile, BeginsWhereAHugePageMay) {
  ASSERT_NE(data_, nullptr);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(data_) % kHugePageBytes, 0U);
  data_[0] = std::byte{1};
  data_[kTwoUnitsAndAPage - 1] = std::byte{2};
}

TEST_F(MemoryFile, KeepsItsBytesInHugePages) {
  ASSERT_NE(data_, nullptr);
  const std::span<std::byte> memory(data_, kTwoUnitsAndAPage);
  data_[5] = std::byte{7};
  data_[kHugePageBytes + 4097] = std::byte{8};
  data_[kTwoUnitsAndAPage - 1] = std::byte{9};
  const std::uint64_t huge = make_pages_huge(descriptor_, 0, memory);
  EXPECT_EQ(huge % kHugePageBytes, 0U);
  EXPECT_LE(huge, 2 * kHugePageBytes);
  EXPECT_EQ(data_[5], std::byte{7});
  EXPECT_EQ(data_[kHugePageBytes + 4097], std::byte{8});
  EXPECT_EQ(data_[kTwoUnitsAndAPage - 1], std::byte{9});
  EXPECT_EQ(std::count(memory.begin(), memory.end(), std::byte{0}), static_cast<std::ptrdiff_t>(kTwoUnitsAndAPage - 3));
  EXPECT_EQ(bytes_in_huge_pages(), huge);
  EXPECT_EQ(can_make_pages_huge(), huge != 0);
}

TEST_F(MemoryFile, GetsHugePagesFromAnyUnitOn) {
  ASSERT_NE(data_, nullptr);
  const std::span<std::byte> memory(data_, kTwoUnitsAndAPage);
  const std::uint64_t huge = make_pages_huge(descriptor_, kHugePageBytes, memory.subspan(kHugePageBytes));
  EXPECT_LE(huge, kHugePageBytes);
  data_[kHugePageBytes] = std::byte{1};
  EXPECT_EQ(bytes_in_huge_pages(), huge);
}

TEST(MemoryFileMapping, IsRefusedWithoutAFile) {
  EXPECT_EQ(map_memory_file(-1, 4096), nullptr);
  EXPECT_EQ(errno, EBADF);
}

}  // namespace
}  // namespace cairn::os
