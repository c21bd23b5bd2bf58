// The exchange over MPI: the cases of the unit tests (tests/unit/io/exchange_case.hpp).
#include <gtest/gtest.h>
#include <mpi.h>

#include "comm/mpi.hpp"
#include "exchange_case.hpp"
#include "random.hpp"

namespace cairn::test {
namespace {

ExchangeShape shape_for(const comm::Communicator& communicator) {
  ExchangeShape shape;
  shape.ranks = shape.aggregators = communicator.size();
  return shape;
}

TEST(ExchangeOnMpi, MovesShortRuns) {
  const auto communicator = comm::duplicate_mpi(MPI_COMM_WORLD);
  auto random = make_random(30);
  std::uint64_t compared = 0;
  for (int repeat = 0; repeat < 20; ++repeat) {
    ExchangeShape shape = shape_for(*communicator);
    shape.share_memory = repeat % 2 == 0;
    shape.block_bytes = uniform(random, 1, 300);
    shape.window_bytes = shape.block_bytes * uniform(random, 1, 20);
    shape.buffer_bytes = uniform(random, 0, 1) == 0 ? 0 : 64ULL << 20;
    compared += check_gather(*communicator, make_exchange_case(random, shape));
    shape.replicas = true;
    compared += check_scatter(*communicator, make_exchange_case(random, shape));
  }
  EXPECT_GT(communicator->sum(compared), 100'000U);
}

TEST(ExchangeOnMpi, MovesLongRuns) {
  const auto communicator = comm::duplicate_mpi(MPI_COMM_WORLD);
  auto random = make_random(31);
  std::uint64_t compared = 0;
  for (int repeat = 0; repeat < 4; ++repeat) {
    ExchangeShape shape = shape_for(*communicator);
    shape.share_memory = repeat == 3;
    shape.block_bytes = 4096;
    shape.window_bytes = 1ULL << 20;
    shape.buffer_bytes = repeat == 0 ? 0 : 4ULL << 20;
    shape.tensor_bytes = 2ULL << 20;
    compared += check_gather(*communicator, make_exchange_case(random, shape));
    shape.replicas = true;
    compared += check_scatter(*communicator, make_exchange_case(random, shape));
  }
  EXPECT_GT(communicator->sum(compared), 1'000'000U);
}

}  // namespace
}  // namespace cairn::test
