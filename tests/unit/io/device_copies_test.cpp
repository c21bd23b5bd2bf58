// Copies between device and host through slots: every byte arrives, and the gaps between rows stay untouched, for any
// strides and any number of slots per row. On the emulated device (ctest io_device) and on a GPU (io_device_gpu).
#include "io/device_copies.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "cairn/error.hpp"
#include "device_memory_support.hpp"
#include "random.hpp"

namespace cairn::io {
namespace {

using test::DeviceBytes;

struct DeviceCopiesTest : testing::Test {
  void SetUp() override {
    const gpu::Availability devices = gpu::availability();
    if (devices.devices == 0) GTEST_SKIP() << "no GPU: " << devices.reason;
  }
};

constexpr std::byte kUntouched{0x3C};
constexpr std::uint64_t kLeast = DeviceCopies::kLeastBytes;

struct Rows {
  std::uint64_t row_bytes;
  std::uint64_t rows;
  std::uint64_t host_stride;
  std::uint64_t device_stride;
};

const std::vector<Rows> kRows = {{1, 1, 1, 1},
                                 {2, 30'000, 2, 64},
                                 {3, 5000, 70, 3},
                                 {512, 700, 512, 512},
                                 {4096, 40, 5000, 4096},
                                 {4095, 40, 4095, 6000},
                                 {4097, 20, 4097, 10'000},
                                 {100'000, 3, 100'000, 100'001},
                                 {300'000, 1, 0, 0},
                                 {0, 5, 8, 8}};

struct Planes {
  std::vector<std::byte> host;
  std::vector<std::byte> device;
  std::vector<std::byte> host_after;    ///< after a copy to the host
  std::vector<std::byte> device_after;  ///< after a copy to the device
};

Planes planes_of(const Rows& r) {
  auto random = test::make_random();
  Planes planes;
  planes.host = test::random_bytes(random, r.rows * std::max(r.host_stride, r.row_bytes));
  planes.device = test::random_bytes(random, r.rows * std::max(r.device_stride, r.row_bytes));
  planes.host_after = planes.host;
  planes.device_after = planes.device;
  for (std::uint64_t row = 0; row < r.rows && r.row_bytes != 0; ++row) {
    std::memcpy(&planes.host_after[row * r.host_stride], &planes.device[row * r.device_stride], r.row_bytes);
    std::memcpy(&planes.device_after[row * r.device_stride], &planes.host[row * r.host_stride], r.row_bytes);
  }
  return planes;
}

TEST_F(DeviceCopiesTest, BringRowsToTheHost) {
  for (const std::uint64_t bytes : {kLeast, 3 * kLeast + 5, std::uint64_t{1} << 20}) {
    DeviceCopies copies(bytes);
    for (const Rows& r : kRows) {
      Planes planes = planes_of(r);
      const DeviceBytes device(planes.device);
      copies.to_host({planes.host.data(), r.host_stride}, {device.data(), r.device_stride}, r.row_bytes, r.rows);
      copies.finish();
      EXPECT_TRUE(planes.host == planes.host_after) << bytes << ": " << r.rows << " rows of " << r.row_bytes;
    }
  }
}

TEST_F(DeviceCopiesTest, BringRowsToTheDevice) {
  for (const std::uint64_t bytes : {kLeast, 3 * kLeast + 5, std::uint64_t{1} << 20}) {
    DeviceCopies copies(bytes);
    for (const Rows& r : kRows) {
      Planes planes = planes_of(r);
      const DeviceBytes device(planes.device);
      copies.to_device({device.data(), r.device_stride}, {planes.host.data(), r.host_stride}, r.row_bytes, r.rows);
      std::fill(planes.host.begin(), planes.host.end(), kUntouched);  // the bytes are in slots or in flight
      copies.finish();
      EXPECT_TRUE(device.bytes() == planes.device_after) << bytes << ": " << r.rows << " rows of " << r.row_bytes;
    }
  }
}

TEST_F(DeviceCopiesTest, SettleMakesTheBytesThere) {
  auto random = test::make_random();
  const std::vector<std::byte> given = test::random_bytes(random, 100);
  const DeviceBytes from(given);
  const DeviceBytes to(std::vector<std::byte>(100, kUntouched));
  std::vector<std::byte> found(100, kUntouched);
  DeviceCopies copies(kLeast);
  copies.to_host({found.data(), 100}, {from.data(), 100}, 100, 1);
  copies.to_device({to.data(), 100}, {given.data(), 100}, 100, 1);
  copies.settle();
  EXPECT_EQ(found, given);
  EXPECT_EQ(to.bytes(), given);
}

/// Short runs share slots, and the number of runs per slot is limited.
TEST_F(DeviceCopiesTest, MoveManyShortRunsBothWaysAtATime) {
  constexpr std::size_t kRuns = 20'000;
  auto random = test::make_random();
  const std::vector<std::byte> given = test::random_bytes(random, 16 * kRuns);
  const DeviceBytes from(given);
  const DeviceBytes to(std::vector<std::byte>(given.size(), kUntouched));
  std::vector<std::byte> found(given.size(), kUntouched);
  std::vector<std::byte> expected = found;
  DeviceCopies copies(2 * kLeast);
  for (std::size_t run = 0; run < kRuns; ++run) {
    const std::size_t at = 16 * ((run * 7919) % kRuns);
    const std::size_t bytes = 1 + run % 16;
    copies.to_host({&found[at], 0}, {from.data() + at, 0}, bytes, 1);
    copies.to_device({to.data() + at, 0}, {&given[at], 0}, bytes, 1);
    std::copy_n(&given[at], bytes, &expected[at]);
  }
  copies.finish();
  EXPECT_TRUE(found == expected);
  EXPECT_TRUE(to.bytes() == expected);
}

TEST_F(DeviceCopiesTest, FetchAndPutPieces) {
  auto random = test::make_random();
  const std::vector<std::byte> given = test::random_bytes(random, 100'000);
  const DeviceBytes from(given);
  const DeviceBytes to(std::vector<std::byte>(given.size(), kUntouched));
  DeviceCopies copies(kLeast);
  std::vector<std::byte> fetched;
  for (std::size_t at = 0; at < given.size(); at += copies.slot_bytes()) {
    const std::uint64_t bytes = std::min(copies.slot_bytes(), given.size() - at);
    const auto piece = copies.fetch({from.data() + at, bytes});
    fetched.insert(fetched.end(), piece.begin(), piece.end());
    const auto room = copies.room(bytes);
    ASSERT_EQ(room.size(), bytes);
    std::copy_n(&given[at], bytes, room.begin());
    copies.put({to.data() + at, bytes});
  }
  copies.finish();
  EXPECT_TRUE(fetched == given);
  EXPECT_TRUE(to.bytes() == given);
}

/// Rows in flight to the host keep their slots.
TEST_F(DeviceCopiesTest, FetchAndPutLeaveRowsThatAreUnderWay) {
  auto random = test::make_random();
  const std::vector<std::byte> given = test::random_bytes(random, 30'000);
  const DeviceBytes device(given);
  const DeviceBytes to(std::vector<std::byte>(1, kUntouched));
  std::vector<std::byte> found(given.size());
  DeviceCopies copies(kLeast);
  for (std::size_t at = 0; at < given.size(); at += 1000) {
    copies.to_host({&found[at], 1000}, {device.data() + at, 1000}, 1000, 1);
    EXPECT_EQ(copies.fetch({device.data() + at, 1})[0], given[at]);
    copies.room(1)[0] = given[at];
    copies.put({to.data(), 1});
  }
  copies.finish();
  EXPECT_TRUE(found == given);
}

/// A piece in flight to the device keeps its slot.
TEST_F(DeviceCopiesTest, RowsLeaveAPieceThatIsUnderWay) {
  auto random = test::make_random();
  const std::vector<std::byte> given = test::random_bytes(random, 2000);
  const DeviceBytes to(std::vector<std::byte>(given.size(), kUntouched));
  DeviceCopies copies(kLeast);
  std::copy_n(given.begin(), 1000, copies.room(1000).begin());
  copies.put({to.data(), 1000});
  copies.to_device({to.data() + 1000, 0}, {&given[1000], 0}, 1000, 1);
  copies.finish();
  EXPECT_TRUE(to.bytes() == given);
}

TEST_F(DeviceCopiesTest, WrongCalls) {
  EXPECT_THROW(DeviceCopies(kLeast - 1), Error);
  DeviceCopies copies(kLeast);
  const DeviceBytes device(std::vector<std::byte>(5000));
  EXPECT_THROW(static_cast<void>(copies.fetch({device.data(), copies.slot_bytes() + 1})), Error);
  EXPECT_THROW(static_cast<void>(copies.room(copies.slot_bytes() + 1)), Error);
}

}  // namespace
}  // namespace cairn::io
