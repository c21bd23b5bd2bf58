// The mount of a path, and the description of the machine.
#include "bench/machine.hpp"

#include <gtest/gtest.h>

#include "simulated.hpp"

namespace cairn::bench {
namespace {

constexpr const char* kMounts =
    "27 1 254:0 / / rw,relatime - ext4 /dev/vda rw,discard\n"
    "30 27 0:27 / /scratch rw,relatime shared:1 master:2 - lustre 10.0.0.1@o2ib:/fs rw,flock\n"
    "31 30 0:28 / /scratch/with\\040blank rw - tmpfs none rw,size=24684084k\n"
    "32 27 0:29 / /over rw - tmpfs none rw\n"
    "33 32 0:30 / /over ro - xfs /dev/vdb ro\n";

TEST(Machine, LongestMountPointWins) {
  EXPECT_EQ(mount_of(kMounts, "/home").type, "ext4");
  EXPECT_EQ(mount_of(kMounts, "/scratch/me/run").type, "lustre");
  EXPECT_EQ(mount_of(kMounts, "/scratch/me/run").source, "10.0.0.1@o2ib:/fs");
  EXPECT_EQ(mount_of(kMounts, "/scratch/me/run").options, "rw,relatime,rw,flock");
  EXPECT_EQ(mount_of(kMounts, "/scratch/with blank/x").type, "tmpfs");
  EXPECT_EQ(mount_of(kMounts, "/scratchy").type, "ext4");
}

TEST(Machine, ALaterMountHidesAnEarlierOne) { EXPECT_EQ(mount_of(kMounts, "/over/x").type, "xfs"); }

TEST(Machine, NoMountsAreUnknown) { EXPECT_EQ(mount_of("", "/x").type, "unknown"); }

TEST(Machine, DescribesItself) {
  comm::run_simulated(3, [](comm::Communicator& world) {
    const Machine machine = describe_machine(world, "/");
    ASSERT_EQ(machine.hosts.size(), 1U);
    EXPECT_EQ(machine.hosts[0].ranks, 3);
    EXPECT_GT(machine.hosts[0].cores, 0U);
    EXPECT_GT(machine.memory_bytes(), 1U << 20);
    EXPECT_EQ(machine.is_host_leader(world.rank()), world.rank() == 0);
    // A chroot that is not a mount point is not in any list of mounts.
    EXPECT_EQ(machine.mount.point, machine.mount.type == "unknown" ? "" : "/");
    EXPECT_NE(machine.date.find('T'), std::string::npos);
    EXPECT_EQ(machine.mpi_library.find('\0'), std::string::npos);
  });
}

}  // namespace
}  // namespace cairn::bench
