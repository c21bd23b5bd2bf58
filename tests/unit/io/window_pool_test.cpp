// How many buffers a pool has, and which pool is kept.
#include "io/window_pool.hpp"

#include <gtest/gtest.h>

#include "comm/simulated.hpp"

namespace cairn::io {
namespace {

constexpr std::uint64_t kStagingBytes = 4ULL << 20;

TEST(WindowPool, HasOneBufferBesideStagingMemory) {
  comm::run_simulated(2, [](comm::Communicator& communicator) {
    WindowPool plain(communicator, 5000);
    WindowPool staged(communicator, 5000, comm::SharedMemory::Reach::kNode, kStagingBytes);
    EXPECT_TRUE(plain.staging().empty());
    EXPECT_EQ(staged.staging().size(), kStagingBytes);
    for (std::uint64_t round = 1; round <= WindowPool::kAhead; ++round) {
      EXPECT_NE(plain.buffers(0), plain.buffers(round));
      EXPECT_EQ(staged.buffers(0), staged.buffers(round));
    }
    EXPECT_EQ(plain.buffers(0), plain.buffers(WindowPool::kAhead + 1));
  });
}

TEST(WindowStore, KeepsAPoolThatServes) {
  comm::run_simulated(2, [](comm::Communicator& communicator) {
    WindowStore store;
    const auto staged = store.get(communicator, 5000, kStagingBytes);
    EXPECT_EQ(store.get(communicator, 4000, kStagingBytes), staged);
    EXPECT_NE(store.get(communicator, 4000, 2 * kStagingBytes), staged) << "more staging memory";
    const auto plain = store.get(communicator, 4000);
    EXPECT_TRUE(plain->staging().empty()) << "several buffers are asked for";
    EXPECT_EQ(store.get(communicator, 4000, kStagingBytes), plain) << "and are enough for anybody";
    EXPECT_NE(store.get(communicator, 9000, kStagingBytes), plain) << "larger buffers";
  });
}

}  // namespace
}  // namespace cairn::io
