// The exchange over MPI with memory boxes on an emulated device: within a node through shared memory, and by messages;
// and a device that refuses a copy on one rank in the middle of a round.
#include <gtest/gtest.h>
#include <mpi.h>

#include "comm/mpi.hpp"
#include "device_memory_support.hpp"
#include "emulated_runtime.hpp"
#include "exchange_case.hpp"
#include "expect_error.hpp"
#include "io/exchange.hpp"
#include "plan/transfers.hpp"

namespace cairn::test {
namespace {

ExchangeShape shape_for(const comm::Communicator& communicator) {
  ExchangeShape shape;
  shape.ranks = shape.aggregators = communicator.size();
  shape.on_device = true;
  return shape;
}

TEST(ExchangeOfDeviceMemory, MovesShortRuns) {
  const auto communicator = comm::duplicate_mpi(MPI_COMM_WORLD);
  const std::uint64_t compared = check_short_runs(*communicator, shape_for(*communicator), 50, 12);
  EXPECT_GT(communicator->sum(compared), 50'000U);
}

TEST(ExchangeOfDeviceMemory, MovesLongRuns) {
  const auto communicator = comm::duplicate_mpi(MPI_COMM_WORLD);
  const std::uint64_t compared = check_long_runs(*communicator, shape_for(*communicator), 51);
  EXPECT_GT(communicator->sum(compared), 1'000'000U);
  EXPECT_LE(gpu::emulated::usage().most_pinned_bytes, io::DeviceCopies::kLeastBytes);
}

/// A checkpoint of one tensor, of which every rank has a row, on the device; each row is in another rank's extents.
struct Rows {
  explicit Rows(int ranks) {
    const auto rows = static_cast<std::uint64_t>(ranks);
    stored.files = {{"f", rows * kBytes}};
    stored.tensors = {{"model", "t", DType::kU8, {rows, kBytes}, {{0, 0, {{0, 0}, {rows, kBytes}}}}}};
  }
  static constexpr std::uint64_t kBytes = 100;
  format::StoredCheckpoint stored;
};

TEST(ExchangeOfDeviceMemory, ARefusedCopyIsAnErrorOnAllRanks) {
  const auto communicator = comm::duplicate_mpi(MPI_COMM_WORLD);
  const int ranks = communicator->size();
  const auto rank = static_cast<std::uint64_t>(communicator->rank());
  const Rows rows(ranks);
  const plan::ExtentMap extents({{0, 0, rows.stored.files[0].size_bytes}}, ranks, Rows::kBytes);
  const DeviceBytes device(std::vector<std::byte>(Rows::kBytes, static_cast<std::byte>(rank + 1)));
  const plan::MemoryBox box{0,
                            {{(rank + 1) % static_cast<std::uint64_t>(ranks), 0}, {1, Rows::kBytes}},
                            {device.data(), device.size()},
                            Memory::kDevice};
  const std::span<const plan::MemoryBox> memory(&box, 1);
  const std::string last_rank = "(rank " + std::to_string(ranks - 1) + ")";
  for (const auto reach : {comm::SharedMemory::Reach::kNode, comm::SharedMemory::Reach::kOwn}) {
    io::WindowPool pool(*communicator, Rows::kBytes, reach);
    io::DeviceCopies copies(io::DeviceCopies::kLeastBytes);
    io::Exchange exchange(
        *communicator, rows.stored.files, extents, Rows::kBytes, pool,
        plan::transfers_of_memory(plan::whole_pieces(communicator->rank(), memory), memory, rows.stored, extents),
        {1 << 20, &copies});
    for (const bool is_load : {false, true}) {
      const auto move = [&] {
        if (is_load) {
          exchange.scatter(0, memory);
        } else {
          exchange.gather(0, memory);
        }
      };
      if (communicator->rank() == ranks - 1) gpu::emulated::fail_work(1);
      expect_error(ErrorKind::kIo, move, {"an emulated fault", ranks == 1 ? "" : last_rank});
      move();
    }
  }
}

}  // namespace
}  // namespace cairn::test
