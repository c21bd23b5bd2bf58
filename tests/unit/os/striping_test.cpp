// Striping: converts hints to numbers, and numbers to the bytes for Lustre's ioctl (does not need Lustre).
#include "os/striping.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cairn/error.hpp"
#include "temp_dir.hpp"

namespace cairn::os {
namespace {

TEST(Striping, ComesFromHints) {
  EXPECT_FALSE(striping_of_hints({}).is_set());
  EXPECT_FALSE(striping_of_hints({{"romio_cb_write", "disable"}}).is_set());
  const Striping both = striping_of_hints({{"striping_factor", "8"}, {"striping_unit", "4194304"}});
  EXPECT_EQ(both.count, 8U);
  EXPECT_EQ(both.unit_bytes, 4U << 20);
  EXPECT_EQ(striping_of_hints({{"striping_factor", "-1"}}).count, Striping::kAllTargets);
}

TEST(Striping, RefusesWhatIsNoStriping) {
  for (const char* factor : {"", "x", "8 ", "-2", "65535", "99999999999999999999"}) {
    EXPECT_THROW(striping_of_hints({{"striping_factor", factor}}), Error) << factor;
  }
  for (const char* unit : {"-65536", "1000", "65537", "4294967296", "1MiB"}) {
    EXPECT_THROW(striping_of_hints({{"striping_unit", unit}}), Error) << unit;
  }
}

TEST(Striping, IsTheStructureOfLustre) {
  const std::vector<std::byte> bytes = encode_striping({0x0102, 0x00200000});
  std::vector<int> values;
  for (const std::byte b : bytes) values.push_back(std::to_integer<int>(b));
  EXPECT_THAT(values, testing::ElementsAre(0xD0, 0x0B, 0xD1, 0x0B,    // magic of version 1
                                           0, 0, 0, 0,                // pattern: default
                                           0, 0, 0, 0, 0, 0, 0, 0,    // object id
                                           0, 0, 0, 0, 0, 0, 0, 0,    // object sequence
                                           0, 0, 0x20, 0,             // stripe size
                                           0x02, 0x01, 0xFF, 0xFF));  // stripe count, any first target
}

TEST(Striping, IsNothingElsewhere) {
  const test::TempDir folder;
  create_striped(folder.path() / "f", {4, 1 << 20}).write_at(std::as_bytes(std::span("abc", 3)), 0);
  EXPECT_EQ(os::file_size(folder.path() / "f"), 3U);
  EXPECT_THROW(create_striped(folder.path() / "f", {4, 1 << 20}), Error) << "it exists";
}

}  // namespace
}  // namespace cairn::os
