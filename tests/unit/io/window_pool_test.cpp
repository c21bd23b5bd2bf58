// The number of buffers in a pool, and the choice of the pool that is kept.
#include "io/window_pool.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "cairn/error.hpp"
#include "faults.hpp"
#include "memory_files.hpp"
#include "simulated.hpp"

namespace cairn::io {
namespace {

std::vector<std::byte*> buffers_of(const WindowPool& pool, std::uint64_t round) {
  std::vector<std::byte*> all;
  pool.put_buffers(round, all);
  return all;
}

constexpr std::uint64_t kBounceBytes = 4ULL << 20;

TEST(WindowPool, HasOneWindowBesideABounceBuffer) {
  comm::run_simulated(2, [](comm::Communicator& communicator) {
    WindowPool plain(communicator, 5000);
    WindowPool bounced(communicator, 5000, comm::SharedMemory::Reach::kNode, kBounceBytes);
    EXPECT_TRUE(plain.bounce_buffer().empty());
    EXPECT_EQ(bounced.bounce_buffer().size(), kBounceBytes);
    for (std::uint64_t round = 1; round <= WindowPool::kAhead; ++round) {
      EXPECT_NE(buffers_of(plain, 0), buffers_of(plain, round));
      EXPECT_EQ(buffers_of(bounced, 0), buffers_of(bounced, round));
    }
    EXPECT_EQ(buffers_of(plain, 0), buffers_of(plain, WindowPool::kAhead + 1));
  });
}

TEST(WindowPool, MakesWindowsInTheirRounds) {
  comm::run_simulated(2, [](comm::Communicator& communicator) {
    constexpr std::uint64_t kBytes = 3ULL << 20;
    WindowPool pool(communicator, kBytes, comm::SharedMemory::Reach::kNode, 0, WindowPool::Pages::kByWindow);
    plan::Window window;
    window.buffer_bytes = kBytes;
    const std::vector<plan::Window> windows(2 * (WindowPool::kAhead + 1), window);
    for (std::uint64_t round = 0; round < windows.size(); ++round) {
      pool.make_window(communicator, round);
      const std::span<std::byte> buffer = pool.of(windows, round).buffer;
      communicator.barrier();
      const std::uint64_t made = std::min(round + 1, WindowPool::kAhead + 1);
      const auto files = test::pages_of_memory_files((WindowPool::kAhead + 1) * kBytes + 4096);
      EXPECT_EQ(files.size(), 2U);
      for (const std::uint64_t pages : files) {
        EXPECT_GE(pages, made * kBytes / 4096 + 1);
        EXPECT_LE(pages, made * kBytes / 4096 + 1 + 511) << "the last huge page may reach into the next window";
      }
      communicator.barrier();
      const auto expected = static_cast<std::byte>(round <= WindowPool::kAhead ? 0 : round - WindowPool::kAhead);
      EXPECT_TRUE(std::ranges::all_of(buffer, [&](std::byte byte) { return byte == expected; })) << round;
      std::ranges::fill(buffer, static_cast<std::byte>(round + 1));
    }
  });
}

TEST(WindowPool, MakesAWindowThatFailedBefore) {
  const test::Faults faults("windows.make:rank=1:after=1:times=1");
  comm::run_simulated(2, [](comm::Communicator& communicator) {
    constexpr std::uint64_t kBytes = 1ULL << 20;
    os::set_fault_rank(communicator.rank());
    WindowPool pool(communicator, kBytes, comm::SharedMemory::Reach::kNode, 0, WindowPool::Pages::kByWindow);
    const auto expect_pages = [&](std::uint64_t windows) {
      communicator.barrier();
      for (const std::uint64_t pages : test::pages_of_memory_files((WindowPool::kAhead + 1) * kBytes + 4096)) {
        EXPECT_GE(pages, windows * kBytes / 4096 + 1);
      }
      communicator.barrier();
    };
    pool.make_window(communicator, 0);
    EXPECT_THROW(pool.make_window(communicator, 1), Error) << "also on the rank where nothing failed";
    pool.make_window(communicator, 1);
    expect_pages(2);
    pool.make_window(communicator, 2);
    expect_pages(3);
  });
}

TEST(WindowStore, KeepsAPoolThatServes) {
  comm::run_simulated(2, [](comm::Communicator& communicator) {
    WindowStore store;
    const auto bounced = store.get(communicator, 5000, kBounceBytes);
    EXPECT_EQ(store.get(communicator, 4000, kBounceBytes), bounced);
    EXPECT_NE(store.get(communicator, 4000, 2 * kBounceBytes), bounced) << "a larger bounce buffer";
    const auto plain = store.get(communicator, 4000);
    EXPECT_TRUE(plain->bounce_buffer().empty()) << "several buffers are asked for";
    EXPECT_EQ(store.get(communicator, 4000, kBounceBytes), plain) << "and are enough for anybody";
    EXPECT_NE(store.get(communicator, 9000, kBounceBytes), plain) << "larger buffers";
  });
}

}  // namespace
}  // namespace cairn::io
