// Copies between device and host on the emulated device: their pinned memory, and failing copies.
#include <gtest/gtest.h>

#include <algorithm>

#include "cairn/error.hpp"
#include "device_memory_support.hpp"
#include "emulated_runtime.hpp"
#include "io/device_copies.hpp"
#include "random.hpp"

namespace cairn::io {
namespace {

using gpu::emulated::usage;
using test::DeviceBytes;

constexpr std::uint64_t kLeast = DeviceCopies::kLeastBytes;

struct EmulatedCopies : testing::TestWithParam<gpu::emulated::Mode> {
  void SetUp() override { gpu::emulated::reset(GetParam()); }
  void TearDown() override {
    EXPECT_EQ(usage().pinned_bytes, 0U);
    EXPECT_EQ(usage().streams, 0U);
    gpu::emulated::reset(gpu::emulated::Mode::kAsLateAsPossible);
  }
};

INSTANTIATE_TEST_SUITE_P(Modes, EmulatedCopies,
                         testing::Values(gpu::emulated::Mode::kAsLateAsPossible, gpu::emulated::Mode::kAtOnce),
                         [](const auto& test) {
                           return test.param == gpu::emulated::Mode::kAtOnce ? "AtOnce" : "Late";
                         });

TEST_P(EmulatedCopies, TakeTheirSlotsAndNoMore) {
  const DeviceBytes device(std::vector<std::byte>(1 << 20));
  std::vector<std::byte> host(1 << 20);
  for (const std::uint64_t bytes : {kLeast, 2 * kLeast - 1, std::uint64_t{300'000}}) {
    gpu::emulated::reset(GetParam());
    DeviceCopies copies(bytes);
    EXPECT_EQ(usage().pinned_bytes, 0U) << "nothing before it is used";
    copies.to_host({host.data(), 0}, {device.data(), 0}, host.size(), 1);
    copies.to_device({device.data(), 0}, {host.data(), 0}, host.size(), 1);
    copies.finish();
    EXPECT_LE(usage().most_pinned_bytes, bytes);
    EXPECT_GT(usage().most_pinned_bytes, bytes - kLeast);
  }
}

TEST_P(EmulatedCopies, KeepTheFirstErrorForFinishAndAreUsableAgain) {
  auto random = test::make_random();
  const std::vector<std::byte> given = test::random_bytes(random, 200'000);
  const DeviceBytes from(given);
  const DeviceBytes to(std::vector<std::byte>(given.size()));
  std::vector<std::byte> found(given.size());
  DeviceCopies copies(kLeast);
  const auto move_all = [&] {
    copies.to_host({found.data(), 1000}, {from.data(), 1000}, 1000, 200);
    copies.to_device({to.data(), 1000}, {given.data(), 1000}, 1000, 200);
  };
  for (const std::uint64_t countdown : {1U, 2U, 30U, 60U, 95U}) {
    gpu::emulated::fail_work(countdown);
    move_all();
    EXPECT_THROW(copies.finish(), Error) << countdown;
    copies.finish();  // reported once
    std::fill(found.begin(), found.end(), std::byte{0});
    move_all();
    copies.finish();
    EXPECT_TRUE(found == given);
    EXPECT_TRUE(to.bytes() == given);
  }
}

TEST_P(EmulatedCopies, DropWhatFollowsAnError) {
  const DeviceBytes device(std::vector<std::byte>(100));
  std::vector<std::byte> host(100, std::byte{1});
  DeviceCopies copies(kLeast);
  gpu::emulated::fail_work(1);
  copies.to_host({host.data(), 0}, {device.data(), 0}, 100, 1);
  copies.settle();
  copies.to_device({device.data(), 0}, {host.data(), 0}, 100, 1);
  EXPECT_THROW(copies.finish(), Error);
  EXPECT_EQ(device.bytes(), std::vector<std::byte>(100));
}

TEST_P(EmulatedCopies, PiecesThrowAtOnceAndForWhatWasBefore) {
  const DeviceBytes device(std::vector<std::byte>(100));
  std::vector<std::byte> host(100);
  DeviceCopies copies(kLeast);
  gpu::emulated::fail_work(1);
  EXPECT_THROW(static_cast<void>(copies.fetch({device.data(), 100})), Error);
  EXPECT_EQ(copies.fetch({device.data(), 100}).size(), 100U);
  gpu::emulated::fail_work(1);
  copies.to_host({host.data(), 0}, {device.data(), 0}, 100, 1);
  copies.settle();
  EXPECT_THROW(static_cast<void>(copies.room(1)), Error);
  EXPECT_EQ(copies.room(1).size(), 1U);
}

TEST_P(EmulatedCopies, WaitForWhatIsUnderWayWhenTheyGo) {
  auto random = test::make_random();
  const std::vector<std::byte> given = test::random_bytes(random, 100);
  const DeviceBytes to(std::vector<std::byte>(100));
  {
    DeviceCopies copies(kLeast);
    copies.to_device({to.data(), 0}, {given.data(), 0}, 100, 1);
  }
  EXPECT_EQ(to.bytes(), given);
}

}  // namespace
}  // namespace cairn::io
