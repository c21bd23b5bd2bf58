// The exchange over MPI: the cases of the unit tests (tests/unit/io/exchange_case.hpp).
#include <gtest/gtest.h>
#include <mpi.h>

#include "comm/mpi.hpp"
#include "exchange_case.hpp"

namespace cairn::test {
namespace {

ExchangeShape shape_for(const comm::Communicator& communicator) {
  ExchangeShape shape;
  shape.ranks = shape.aggregators = communicator.size();
  return shape;
}

TEST(ExchangeOnMpi, MovesShortRuns) {
  const auto communicator = comm::duplicate_mpi(MPI_COMM_WORLD);
  const std::uint64_t compared = check_short_runs(*communicator, shape_for(*communicator), 30, 20);
  EXPECT_GT(communicator->sum(compared), 100'000U);
}

TEST(ExchangeOnMpi, MovesLongRuns) {
  const auto communicator = comm::duplicate_mpi(MPI_COMM_WORLD);
  const std::uint64_t compared = check_long_runs(*communicator, shape_for(*communicator), 31);
  EXPECT_GT(communicator->sum(compared), 1'000'000U);
}

}  // namespace
}  // namespace cairn::test
