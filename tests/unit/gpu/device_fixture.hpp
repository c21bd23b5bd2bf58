// Tests that need a device; without one they are skipped with the reason.
#pragma once

#include <gtest/gtest.h>

#include "gpu/runtime.hpp"

namespace cairn::gpu::test {

struct OnDeviceTest : testing::Test {
  void SetUp() override {
    const Availability devices = availability();
    if (devices.devices == 0) GTEST_SKIP() << "no GPU: " << devices.reason;
  }
};

}  // namespace cairn::gpu::test
