// Without a GPU (no driver, or a build without CUDA), the library gives the reason and refuses calls that need a GPU;
// all other calls work. With a GPU, its presence is reported.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>

#include "cairn/error.hpp"
#include "gpu/pipeline.hpp"
#include "gpu/runtime.hpp"

namespace cairn::gpu::test {
namespace {

TEST(Absent, AvailabilityIsAValue) {
  const Availability found = availability();
  EXPECT_EQ(found.devices == 0, !found.reason.empty());
  EXPECT_THAT(built_with(), testing::HasSubstr("CUDA"));
  if (found.devices != 0) {
    EXPECT_FALSE(describe_device(0).empty());
  }
}

TEST(Absent, HostMemoryIsHostMemory) {
  const int local = 0;
  const auto heap = std::make_unique<int>(0);
  EXPECT_EQ(place_of(&local).kind, MemoryKind::kHost);
  EXPECT_EQ(place_of(heap.get()).kind, MemoryKind::kHost);
  EXPECT_EQ(place_of(nullptr).kind, MemoryKind::kHost);
}

TEST(Absent, WhatNeedsADeviceIsRefusedInOneLine) {
  if (availability().devices != 0) GTEST_SKIP() << "there is a GPU";
  const auto expect_refused = [](const auto& action) {
    try {
      action();
      ADD_FAILURE() << "nothing was thrown";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kUsage) << error.what();
      EXPECT_THAT(error.what(), testing::StartsWith("GPU: "));
      EXPECT_THAT(error.what(), testing::Not(testing::HasSubstr("\n")));
    }
  };
  expect_refused([] { const Stream stream; });
  expect_refused([] { const Event event; });
  expect_refused([] { const DeviceBuffer buffer(100); });
  expect_refused([] { const PinnedBuffer buffer(100); });
  expect_refused([] { Pipeline pipeline({}); });
  expect_refused([] { const OnDevice device(0); });
  const DeviceBuffer nothing(0);
  EXPECT_EQ(nothing.span().data, nullptr);
}

}  // namespace
}  // namespace cairn::gpu::test
