// What the kernel's settings of huge pages mean.
#include "os/huge_pages.hpp"

#include <gtest/gtest.h>

#include <fstream>

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

}  // namespace
}  // namespace cairn::os
