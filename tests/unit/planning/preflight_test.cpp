// A save that cannot succeed is refused with figures and advice; facts that the system does not tell refuse nothing.
#include "planning/preflight.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>

namespace cairn::planning {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr std::uint64_t kGib = 1ULL << 30;

SaveNeeds needs() {
  return {.bytes = 3 * kGib, .files = 12, .largest_file_bytes = 2 * kGib, .largest_file = "model.safetensors"};
}

os::StorageFacts roomy(const std::string& type = "ext4") {
  os::StorageFacts facts;
  facts.type = type;
  facts.free_bytes = 3 * kGib;
  facts.free_files = 12;
  return facts;
}

TEST(Preflight, JustEnoughIsEnough) {
  EXPECT_FALSE(want_of_room(needs(), roomy(), "/r"));
  os::StorageFacts facts = roomy();
  facts.quotas = {{"user 7", 3 * kGib, 12}, {"group 8", std::nullopt, 12}, {"group 9", 3 * kGib, std::nullopt}};
  facts.largest_file_bytes = 2 * kGib;
  EXPECT_FALSE(want_of_room(needs(), facts, "/r"));
}

TEST(Preflight, WhatIsUnknownRefusesNothing) {
  EXPECT_FALSE(want_of_room(needs(), {}, "/r"));
  EXPECT_FALSE(want_of_size("f", 1ULL << 60, std::nullopt));
}

TEST(Preflight, SaysHowMuchSpaceIsMissing) {
  os::StorageFacts facts = roomy();
  facts.free_bytes = kGib;
  const auto found = want_of_room(needs(), facts, "/r");
  ASSERT_TRUE(found);
  EXPECT_EQ(found->error, ENOSPC);
  EXPECT_TRUE(found->is_want_of_room);
  EXPECT_TRUE(found->is_certain);
  EXPECT_THAT(found->text, AllOf(HasSubstr("No space left on device: the save needs 3.00 GiB (3,221,225,472 bytes)"),
                                 HasSubstr("ext4 at '/r' has 1.00 GiB (1,073,741,824 bytes) left: 2.00 GiB"),
                                 HasSubstr("cairn prune")));
}

TEST(Preflight, FileSystemsThatCompressOrPassFiguresOnAreNotCertain) {
  for (const char* type : {"btrfs", "zfs", "fuse", "overlay", "0x1234", "cifs"}) {
    os::StorageFacts facts = roomy(type);
    facts.free_bytes = 0;
    EXPECT_FALSE(want_of_room(needs(), facts, "/r").value().is_certain) << type;
  }
  for (const char* type : {"ext4", "xfs", "tmpfs", "lustre", "gpfs", "beegfs", "nfs"}) {
    os::StorageFacts facts = roomy(type);
    facts.free_bytes = 0;
    EXPECT_TRUE(want_of_room(needs(), facts, "/r").value().is_certain) << type;
  }
}

TEST(Preflight, SaysHowManyInodesAreMissing) {
  os::StorageFacts facts = roomy();
  facts.free_files = 11;
  const auto found = want_of_room(needs(), facts, "/r");
  ASSERT_TRUE(found);
  EXPECT_EQ(found->error, ENOSPC);
  EXPECT_THAT(found->text,
              AllOf(HasSubstr("makes 12 files and directories"), HasSubstr("has 11 left (inodes): 1 too few")));
}

TEST(Preflight, QuotasCountAlsoWhereSpaceIsUncertain) {
  os::StorageFacts facts = roomy("zfs");
  facts.quotas = {{"user 7", 4 * kGib, std::nullopt}, {"project 3", kGib, 5}};
  auto found = want_of_room(needs(), facts, "/r");
  ASSERT_TRUE(found);
  EXPECT_EQ(found->error, EDQUOT);
  EXPECT_TRUE(found->is_certain);
  EXPECT_THAT(found->text,
              AllOf(HasSubstr("Disk quota exceeded"), HasSubstr("the quota of project 3 at '/r' has 1.00 GiB")));
  facts.quotas = {{"user 7", std::nullopt, 5}};
  found = want_of_room(needs(), facts, "/r");
  ASSERT_TRUE(found);
  EXPECT_THAT(found->text, HasSubstr("the quota of user 7 at '/r' has 5 left (inodes): 7 too few"));
}

TEST(Preflight, TheLargestFileOfAFileSystemAndOfAProcess) {
  os::StorageFacts facts = roomy("vfat");
  facts.largest_file_bytes = kGib;
  const auto found = want_of_room(needs(), facts, "/r");
  ASSERT_TRUE(found);
  EXPECT_EQ(found->error, EFBIG);
  EXPECT_FALSE(found->is_want_of_room);
  EXPECT_THAT(found->text,
              AllOf(HasSubstr("'model.safetensors' would have 2.00 GiB"), HasSubstr("Options::files.max_bytes")));

  EXPECT_FALSE(want_of_size("f", 100, 100));
  const auto limited = want_of_size("f", 101, 100);
  ASSERT_TRUE(limited);
  EXPECT_EQ(limited->error, EFBIG);
  EXPECT_THAT(limited->text, AllOf(HasSubstr("'f' would have 101 bytes"),
                                   HasSubstr("files of this process may have 100 bytes: raise the limit (ulimit -f)")));
}

TEST(Preflight, StripesOfLustre) {
  const StripeAdvice one = advise_on_stripes(os::Striping{1, 0});
  EXPECT_EQ(one.finding, "this directory has stripe_count 1: each file is on one OST");
  EXPECT_THAT(one.remedy, HasSubstr("lfs setstripe -c"));
  EXPECT_THAT(advise_on_stripes(os::Striping{}).remedy, HasSubstr("lfs setstripe -c"));
  const StripeAdvice eight = advise_on_stripes(os::Striping{8, 1 << 20});
  EXPECT_THAT(eight.finding, AllOf(HasSubstr("stripe_count 8"), HasSubstr("1.00 MiB")));
  EXPECT_EQ(eight.remedy, "");
  EXPECT_THAT(advise_on_stripes(os::Striping{os::Striping::kAllTargets, 0}).finding, HasSubstr("on all OSTs"));
  EXPECT_EQ(advise_on_stripes(std::nullopt).remedy, "");
}

}  // namespace
}  // namespace cairn::planning
