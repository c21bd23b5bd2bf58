// The exchange with memory boxes on a device, some on each rank: random cases as in exchange_test.cpp, and refusals.
// On the emulated device (ctest io_device) and on a GPU (io_device_gpu).
#include <gtest/gtest.h>

#include <atomic>

#include "cairn/error.hpp"
#include "exchange_case.hpp"
#include "expect_error.hpp"
#include "gpu/runtime.hpp"
#include "io/exchange.hpp"
#include "random.hpp"
#include "simulated.hpp"

namespace cairn::io {
namespace {

struct ExchangeWithDevice : testing::Test {
  void SetUp() override {
    const gpu::Availability devices = gpu::availability();
    if (devices.devices == 0) GTEST_SKIP() << "no GPU: " << devices.reason;
  }
};

TEST_F(ExchangeWithDevice, MovesEveryByteBothWays) {
  auto random = test::make_random(40);
  std::atomic<std::uint64_t> compared = 0;
  for (const int ranks : {1, 3}) {
    for (int repeat = 0; repeat < 12; ++repeat) {
      test::ExchangeShape shape;
      shape.ranks = ranks;
      shape.aggregators = static_cast<int>(test::uniform(random, 1, static_cast<std::uint64_t>(ranks)));
      shape.block_bytes = test::uniform(random, 1, 200);
      shape.window_bytes = shape.block_bytes * test::uniform(random, 1, 20);
      shape.buffer_bytes = repeat % 2 == 0 ? 0 : 64ULL << 20;
      shape.on_device = true;
      const test::ExchangeCase save = test::make_exchange_case(random, shape);
      shape.replicas = true;
      const test::ExchangeCase load = test::make_exchange_case(random, shape);
      const int ranks_per_node = repeat % (ranks + 1);
      comm::run_simulated(
          ranks, [&](comm::Communicator& communicator) { compared += check_gather(communicator, save); },
          ranks_per_node);
      comm::run_simulated(
          ranks, [&](comm::Communicator& communicator) { compared += check_scatter(communicator, load); },
          ranks_per_node);
      ASSERT_FALSE(HasFailure()) << ranks << " ranks, repeat " << repeat;
    }
  }
  EXPECT_GT(compared, 100'000U);
}

/// Long runs of host memory go directly to the window; device memory is always packed.
TEST_F(ExchangeWithDevice, PacksLongRunsOfDeviceMemory) {
  auto random = test::make_random(41);
  for (const std::uint64_t buffer : {std::uint64_t{0}, std::uint64_t{64} << 20}) {
    test::ExchangeShape shape;
    shape.ranks = shape.aggregators = 3;
    shape.block_bytes = 4096;
    shape.window_bytes = 1ULL << 20;
    shape.buffer_bytes = buffer;
    shape.tensor_bytes = 2ULL << 20;
    shape.on_device = true;
    const test::ExchangeCase save = test::make_exchange_case(random, shape);
    comm::run_simulated(
        3, [&](comm::Communicator& communicator) { check_gather(communicator, save); }, 1);
    shape.replicas = true;
    const test::ExchangeCase load = test::make_exchange_case(random, shape);
    comm::run_simulated(
        3, [&](comm::Communicator& communicator) { check_scatter(communicator, load); }, 1);
    ASSERT_FALSE(HasFailure()) << "buffer " << buffer;
  }
}

TEST(ExchangeOfDeviceMemory, IsRefusedWithoutSlotsAndWhereTheMemoryIsAnother) {
  const std::vector<format::StoredFile> files{{"f", 8}};
  const plan::ExtentMap extents{{{0, 0, 8}}, 1, 8};
  comm::run_simulated(1, [&](comm::Communicator& communicator) {
    plan::Runs runs;
    runs.run_bytes = runs.bytes = 8;
    WindowPool pool(communicator, 8);
    Exchange exchange(communicator, files, extents, 8, pool, {runs}, {});
    base::Bytes memory(8);
    plan::MemoryBox box{0, {{0}, {8}}, memory, Memory::kDevice};
    test::expect_error(ErrorKind::kInternal,
                       [&] {
                         exchange.gather(0, {&box, 1});
                       },
                       {"memory box 0 is in device memory, its transfers are of host memory"});
    runs.memory = Memory::kDevice;
    test::expect_error(ErrorKind::kInternal, [&] { Exchange(communicator, files, extents, 8, pool, {runs}, {}); },
                       {"in device memory, and there is nothing to copy them with"});
  });
}

}  // namespace
}  // namespace cairn::io
