// The exchange on simulated ranks: random checkpoints, shards, windows and buffers, both directions.
#include "io/exchange.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>

#include "cairn/error.hpp"
#include "exchange_case.hpp"
#include "random.hpp"
#include "simulated.hpp"

namespace cairn::io {
namespace {

using test::ExchangeCase;
using test::ExchangeShape;

ExchangeShape random_shape(std::mt19937_64& random, int ranks) {
  ExchangeShape shape;
  shape.ranks = ranks;
  shape.workers = static_cast<int>(test::uniform(random, 1, static_cast<std::uint64_t>(ranks)));
  shape.grain_bytes = test::uniform(random, 1, 200);
  shape.window_bytes = shape.grain_bytes * test::uniform(random, 1, 20);
  shape.buffer_bytes = test::uniform(random, 0, 1) == 0 ? 0 : 64ULL << 20;  // 0: the smallest that it takes
  return shape;
}

TEST(Exchange, GathersEveryByteToItsOwner) {
  auto random = test::make_random(10);
  std::atomic<std::uint64_t> compared = 0;
  for (const int ranks : {1, 2, 3, 4, 7}) {
    for (int repeat = 0; repeat < 25; ++repeat) {
      const ExchangeCase c = test::make_exchange_case(random, random_shape(random, ranks));
      comm::run_simulated(
          ranks, [&](comm::Communicator& communicator) { compared += check_gather(communicator, c); },
          repeat % (ranks + 1));
      ASSERT_FALSE(HasFailure()) << ranks << " ranks, repeat " << repeat;
    }
  }
  EXPECT_GT(compared, 500'000U);
}

TEST(Exchange, ScattersEveryByteToAllWhoWantIt) {
  auto random = test::make_random(11);
  std::atomic<std::uint64_t> compared = 0;
  for (const int ranks : {1, 2, 3, 4, 7}) {
    for (int repeat = 0; repeat < 25; ++repeat) {
      ExchangeShape shape = random_shape(random, ranks);
      shape.replicas = true;
      const ExchangeCase c = test::make_exchange_case(random, shape);
      comm::run_simulated(
          ranks, [&](comm::Communicator& communicator) { compared += check_scatter(communicator, c); },
          repeat % (ranks + 1));
      ASSERT_FALSE(HasFailure()) << ranks << " ranks, repeat " << repeat;
    }
  }
  EXPECT_GT(compared, 500'000U);
}

TEST(Exchange, MovesLongRunsWithoutPackingAndShortOnesInSlots) {
  auto random = test::make_random(12);
  for (const int ranks : {2, 3}) {
    const int ranks_per_node = 1;  // ranks of one node copy instead
    for (const std::uint64_t buffer : {std::uint64_t{0}, std::uint64_t{64} << 20}) {
      ExchangeShape shape;
      shape.ranks = shape.workers = ranks;
      shape.grain_bytes = 4096;
      shape.window_bytes = 1ULL << 20;
      shape.buffer_bytes = buffer;
      shape.tensor_bytes = 3ULL << 20;
      const ExchangeCase save = test::make_exchange_case(random, shape);
      comm::run_simulated(
          ranks, [&](comm::Communicator& communicator) { check_gather(communicator, save); }, ranks_per_node);
      shape.replicas = true;
      const ExchangeCase load = test::make_exchange_case(random, shape);
      comm::run_simulated(
          ranks, [&](comm::Communicator& communicator) { check_scatter(communicator, load); }, ranks_per_node);
      ASSERT_FALSE(HasFailure()) << ranks << " ranks, buffer " << buffer;
    }
  }
}

/// One U8 tensor of eight bytes in one file; rank 0 owns the file, the last rank holds the tensor.
struct Tiny {
  format::StoredCheckpoint stored{{{"f", 8}}, {{"model", "t", DType::kU8, {8}, {{0, 0, {{0}, {8}}}}}}};
  plan::ExtentMap extents{{{0, 0, 8}}, 1, 8};
  [[nodiscard]] std::vector<plan::Transfer> of_last(const comm::Communicator& communicator) const {
    if (communicator.rank() + 1 != communicator.size()) return {};
    return {{communicator.rank(), 0, 0, 0, 0, {{0}, {8}}, {{0}, {8}}}};
  }
};

std::string message_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kInternal);
    return error.what();
  }
  return "no error";
}

TEST(Exchange, TellsAllRanksOfAWrongTransfer) {
  const Tiny tiny;
  comm::run_simulated(2, [&](comm::Communicator& communicator) {
    auto mine = tiny.of_last(communicator);
    if (!mine.empty()) mine[0].tensor = 5;
    WindowPool pool(communicator, 8);
    const std::string message =
        message_of([&] { Exchange(communicator, tiny.stored, tiny.extents, 8, pool, mine, ExchangeOptions{}); });
    EXPECT_THAT(message, testing::HasSubstr("transfer of tensor 5 from memory of rank 1 to extents of rank 0"));
    EXPECT_THAT(message, testing::HasSubstr("(rank 1)"));
  });
}

TEST(Exchange, TellsAllRanksOfAMemoryBoxThatIsTooSmall) {
  const Tiny tiny;
  comm::run_simulated(2, [&](comm::Communicator& communicator) {
    WindowPool pool(communicator, 8);
    Exchange exchange(communicator, tiny.stored, tiny.extents, 8, pool, tiny.of_last(communicator), ExchangeOptions{});
    base::Bytes memory(7);
    const std::span<const std::byte> view = memory;
    EXPECT_THAT(message_of([&] {
                  exchange.gather(0, {&view, 1});
                }),
                testing::HasSubstr("memory box 0 has 7 bytes where its transfers need 8 (rank 1)"));
  });
}

TEST(Exchange, RefusesBuffersThatAreTooSmall) {
  const Tiny tiny;
  comm::run_simulated(2, [&](comm::Communicator& communicator) {
    WindowPool pool(communicator, 7);
    EXPECT_THAT(message_of([&] {
                  Exchange(communicator, tiny.stored, tiny.extents, 8, pool, tiny.of_last(communicator),
                           ExchangeOptions{});
                }),
                testing::HasSubstr("a window of 8 bytes and a buffer of 7 (rank 0)"));
  });
}

TEST(Exchange, HasNoRoundsWithoutBytes) {
  const format::StoredCheckpoint nothing;
  const plan::ExtentMap extents({}, 3, 64);
  comm::run_simulated(3, [&](comm::Communicator& communicator) {
    WindowPool pool(communicator, 0);
    const Exchange exchange(communicator, nothing, extents, 64, pool, {}, ExchangeOptions{});
    EXPECT_EQ(exchange.rounds(), 0U);
    EXPECT_TRUE(exchange.windows().empty());
  });
}

}  // namespace
}  // namespace cairn::io
