// Hints passed to MPI-IO: every file system, the user's setting, and the report of an open file.
#include "io/mpiio_hints.hpp"

#include <gtest/gtest.h>

namespace cairn::io {
namespace {

const Hints kIndependent = {{"romio_cb_read", "disable"}, {"romio_cb_write", "disable"}, {"romio_ds_write", "disable"}};

constexpr std::string_view kFileSystems[] = {"lustre", "gpfs", "beegfs", "nfs",  "ext4",  "xfs",
                                             "btrfs",  "zfs",  "tmpfs",  "fuse", "ramfs", "0x12345678",
                                             "",       "ceph", "cifs",   "9p",   "smb2",  "orangefs"};

TEST(MpiioHints, EveryRankMovesItsOwnBytesOnEveryFileSystem) {
  for (const std::string_view file_system : kFileSystems) {
    EXPECT_EQ(mpiio_hints(file_system, {}), kIndependent) << file_system;
  }
}

TEST(MpiioHints, CollectiveWritesReadNothingBack) {
  for (const std::string_view file_system : kFileSystems) {
    Hints expected = {{"romio_cb_read", "disable"}, {"romio_cb_write", "enable"}, {"romio_ds_write", "disable"}};
    if (file_system == "lustre") expected["romio_lustre_ds_in_coll"] = "disable";
    EXPECT_EQ(mpiio_hints(file_system, {{"romio_cb_write", "enable"}}), expected) << file_system;
    expected["romio_cb_write"] = "automatic";
    EXPECT_EQ(mpiio_hints(file_system, {{"romio_cb_write", "automatic"}}), expected) << file_system;
  }
}

TEST(MpiioHints, CollectiveReadsAloneChangeNothingElse) {
  EXPECT_EQ(mpiio_hints("lustre", {{"romio_cb_read", "enable"}}),
            (Hints{{"romio_cb_read", "enable"}, {"romio_cb_write", "disable"}, {"romio_ds_write", "disable"}}));
}

TEST(MpiioHints, TheUserWins) {
  const Hints user = {{"romio_cb_write", "enable"},
                      {"romio_cb_read", "automatic"},
                      {"romio_ds_write", "enable"},
                      {"romio_lustre_ds_in_coll", "enable"},
                      {"cb_nodes", "8"},
                      {"striping_factor", "-1"}};
  for (const std::string_view file_system : kFileSystems) EXPECT_EQ(mpiio_hints(file_system, user), user);
}

TEST(MpiioHints, HintsOfOthersAreHandedOn) {
  Hints expected = kIndependent;
  expected["direct_write"] = "true";
  expected["panfs_concurrent_write"] = "1";
  EXPECT_EQ(mpiio_hints("lustre", {{"direct_write", "true"}, {"panfs_concurrent_write", "1"}}), expected);
}

TEST(ReadsOwnBytes, UnlessBufferingIsCollective) {
  EXPECT_TRUE(reads_own_bytes(mpiio_hints("ext4", {})));
  EXPECT_TRUE(reads_own_bytes(mpiio_hints("gpfs", {{"romio_cb_write", "enable"}})));
  EXPECT_FALSE(reads_own_bytes(mpiio_hints("gpfs", {{"romio_cb_read", "enable"}})));
  EXPECT_FALSE(reads_own_bytes(mpiio_hints("gpfs", {{"romio_cb_read", "automatic"}})));
  EXPECT_FALSE(reads_own_bytes({}));  // MPI may choose
  EXPECT_TRUE(writes_own_bytes(mpiio_hints("gpfs", {{"romio_cb_read", "enable"}})));
  EXPECT_FALSE(writes_own_bytes(mpiio_hints("gpfs", {{"romio_cb_write", "enable"}})));
  EXPECT_TRUE(reads_own_bytes(mpiio_hints("lustre", {{"romio_no_indep_rw", "false"}})));
  for (const char* yes : {"true", "TRUE"}) {
    EXPECT_FALSE(reads_own_bytes(mpiio_hints("lustre", {{"romio_no_indep_rw", yes}})));
  }
}

TEST(HintsThatMatter, AreThosePassedAndThoseThatTell) {
  const Hints of_file = {{"romio_cb_write", "disable"}, {"cb_nodes", "4"},     {"ind_rd_buffer_size", "4194304"},
                         {"romio_cb_pfr", "disable"},   {"mine", "refreshed"}, {"striping_unit", "1048576"}};
  const Hints passed = {{"romio_cb_write", "enable"}, {"mine", "old"}, {"unknown", "x"}};
  // Values are those of the file; hints that MPI does not report are omitted.
  EXPECT_EQ(
      hints_that_matter(of_file, passed),
      (Hints{{"romio_cb_write", "disable"}, {"cb_nodes", "4"}, {"mine", "refreshed"}, {"striping_unit", "1048576"}}));
  EXPECT_TRUE(hints_that_matter({}, passed).empty());
}

}  // namespace
}  // namespace cairn::io
