// The exchange on simulated ranks: random checkpoints, shards, windows and buffers, both directions.
#include "io/exchange.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cairn/error.hpp"
#include "exchange_case.hpp"
#include "plan/transfers.hpp"
#include "random.hpp"
#include "simulated.hpp"

namespace cairn::io {
namespace {

using test::ExchangeCase;
using test::ExchangeShape;
using testing::AllOf;
using testing::EndsWith;
using testing::HasSubstr;

ExchangeShape random_shape(std::mt19937_64& random, int ranks) {
  ExchangeShape shape;
  shape.ranks = ranks;
  shape.aggregators = static_cast<int>(test::uniform(random, 1, static_cast<std::uint64_t>(ranks)));
  shape.block_bytes = test::uniform(random, 1, 200);
  shape.window_bytes = shape.block_bytes * test::uniform(random, 1, 20);
  shape.buffer_bytes = test::uniform(random, 0, 1) == 0 ? 0 : 64ULL << 20;  // 0: the smallest possible
  return shape;
}

TEST(Exchange, GathersEveryByteToItsAggregator) {
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
    const int ranks_per_node = 1;  // ranks of one node would copy instead of sending
    for (const std::uint64_t buffer : {std::uint64_t{0}, std::uint64_t{64} << 20}) {
      ExchangeShape shape;
      shape.ranks = shape.aggregators = ranks;
      shape.block_bytes = 4096;
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

/// Two files of 16 bytes; rank 0 owns the first, rank 1 the second. The last rank holds bytes 4, 5, 8 and 9 of the
/// first file: two runs of 2 bytes, with a gap of 2.
struct Tiny {
  static constexpr std::uint64_t kBlock = 8;
  std::vector<format::StoredFile> files{{"f", 16}, {"g", 16}};
  plan::ExtentMap extents{{{0, 0, 16}, {1, 0, 16}}, 2, kBlock};
  [[nodiscard]] static std::vector<plan::Runs> of_last(const comm::Communicator& communicator) {
    if (communicator.rank() + 1 != communicator.size()) return {};
    plan::Runs runs;
    runs.memory_rank = communicator.rank();
    runs.file_begin = 4;
    runs.run_bytes = 2;
    runs.bytes = 4;
    runs.depth = 1;
    runs.levels[0] = {2, 4, 4};
    return {runs};
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

using Damage = std::function<void(plan::Runs&)>;

/// The error on both ranks if the last rank's transfer is damaged in this way.
std::string message_of_damage(const Damage& damage) {
  const Tiny tiny;
  std::array<std::string, 2> messages;
  comm::run_simulated(2, [&](comm::Communicator& communicator) {
    auto mine = Tiny::of_last(communicator);
    for (plan::Runs& runs : mine) damage(runs);
    WindowPool pool(communicator, 16);
    messages[static_cast<std::size_t>(communicator.rank())] =
        message_of([&] { Exchange(communicator, tiny.files, tiny.extents, 16, pool, mine, ExchangeOptions{}); });
  });
  EXPECT_EQ(messages[0], messages[1]);
  return messages[0];
}

TEST(Exchange, TellsAllRanksOfAWrongTransfer) {
  const std::string who = "4 bytes from memory of rank 1 to extents of rank 0";
  EXPECT_EQ(message_of_damage([](plan::Runs&) {}), "no error");
  EXPECT_THAT(message_of_damage([](plan::Runs& runs) { runs.levels[0].file_stride = 1; }),
              AllOf(HasSubstr(who), HasSubstr("its runs in the file lie in each other"), HasSubstr("(rank 1)")));
  EXPECT_THAT(message_of_damage([](plan::Runs& runs) { runs.bytes = 5; }), HasSubstr("do not add up"));
  EXPECT_THAT(message_of_damage([](plan::Runs& runs) { runs.file = 2; }),
              HasSubstr(who + " are of file number 2, and there are 2"));
  EXPECT_THAT(message_of_damage([](plan::Runs& runs) { runs.file_begin = 11; }),
              HasSubstr(who + " end at byte 17 of a file of 16"));
  EXPECT_THAT(message_of_damage([](plan::Runs& runs) { runs.file_rank = 2; }), HasSubstr("there is no such rank"));
  EXPECT_THAT(message_of_damage([](plan::Runs& runs) { runs.memory_rank = 0; }),
              HasSubstr("are not of this rank's memory"));
  EXPECT_THAT(message_of_damage([](plan::Runs& runs) { runs.file = 1; }),
              AllOf(HasSubstr(who), HasSubstr("none of them lies in these extents")));
}

/// A communicator that changes incoming data of an all-to-all.
class Meddler final : public comm::Communicator {
 public:
  using Change = std::function<void(std::vector<base::Bytes>&)>;
  Meddler(comm::Communicator& inner, Change change) : inner_(inner), change_(std::move(change)) {}

  [[nodiscard]] int rank() const override { return inner_.rank(); }
  [[nodiscard]] int size() const override { return inner_.size(); }
  void barrier() override { inner_.barrier(); }
  void broadcast(std::span<std::byte> data, int root) override { inner_.broadcast(data, root); }
  void all_reduce(std::span<std::uint64_t> values, comm::ReduceOp op) override { inner_.all_reduce(values, op); }
  void all_reduce(std::span<double> values, comm::ReduceOp op) override { inner_.all_reduce(values, op); }
  std::vector<base::Bytes> all_to_all(std::vector<base::Bytes> outgoing) override {
    auto incoming = inner_.all_to_all(std::move(outgoing));
    change_(incoming);
    return incoming;
  }
  std::vector<base::Bytes> all_gather(std::span<const std::byte> mine) override { return inner_.all_gather(mine); }
  std::vector<base::Bytes> gather(std::span<const std::byte> mine, int root) override {
    return inner_.gather(mine, root);
  }
  std::unique_ptr<comm::Request> send(std::span<const std::byte> data, int to, int tag) override {
    return inner_.send(data, to, tag);
  }
  std::unique_ptr<comm::Request> receive(std::span<std::byte> data, int from, int tag) override {
    return inner_.receive(data, from, tag);
  }
  std::unique_ptr<Communicator> duplicate() override { return inner_.duplicate(); }
  std::unique_ptr<Communicator> subgroup(int first, int last, int tag) override {
    return inner_.subgroup(first, last, tag);
  }
  std::unique_ptr<Communicator> node() override { return inner_.node(); }

 private:
  comm::Communicator& inner_;
  Change change_;
};

/// The error on both ranks, which are on two nodes, if rank 1's transfer arrives damaged in this way.
std::string message_of_arrival(const Damage& damage) {
  const Tiny tiny;
  std::array<std::string, 2> messages;
  const auto run = [&](comm::Communicator& inner) {
    WindowPool pool(inner, 16);
    Meddler communicator(inner, [&](std::vector<base::Bytes>& incoming) {
      if (inner.rank() != 0) return;
      auto runs = plan::parse_runs(incoming.at(1), 0);
      ASSERT_EQ(runs.size(), 1U);
      damage(runs[0]);
      incoming[1].clear();
      plan::append_runs(incoming[1], runs[0]);
    });
    messages[static_cast<std::size_t>(inner.rank())] = message_of(
        [&] { Exchange(communicator, tiny.files, tiny.extents, 16, pool, Tiny::of_last(inner), ExchangeOptions{}); });
  };
  comm::run_simulated(2, run, 1);
  EXPECT_EQ(messages[0], messages[1]);
  return messages[0];
}

TEST(Exchange, ChecksWhatArrivesFromOtherNodes) {
  EXPECT_EQ(message_of_arrival([](plan::Runs&) {}), "no error");
  EXPECT_THAT(
      message_of_arrival([](plan::Runs& runs) { runs.bytes = 5; }),
      AllOf(HasSubstr("transfer of 5 bytes from memory of rank 1 to extents of rank 0: its levels do not add up"),
            HasSubstr("(rank 0)")));
  EXPECT_THAT(message_of_arrival([](plan::Runs& runs) { runs.memory_rank = 0; }), HasSubstr("came from rank 1"));
  EXPECT_THAT(message_of_arrival([](plan::Runs& runs) { runs.file = 7; }), HasSubstr("file number 7"));
  EXPECT_THAT(message_of_arrival([](plan::Runs& runs) { runs.file_begin = 16; }),
              HasSubstr("end at byte 22 of a file"));
  EXPECT_THAT(message_of_arrival([](plan::Runs& runs) { runs.file = 1; }),
              HasSubstr("none of them lies in these extents"));
}

TEST(Exchange, TellsAllRanksOfAMemoryBoxThatIsTooSmallOrElsewhere) {
  const Tiny tiny;
  comm::run_simulated(2, [&](comm::Communicator& communicator) {
    WindowPool pool(communicator, 16);
    const auto refused = [&](std::size_t bytes, Memory where) {
      Exchange exchange(communicator, tiny.files, tiny.extents, 16, pool, Tiny::of_last(communicator),
                        ExchangeOptions{});
      base::Bytes memory(bytes);
      const plan::MemoryBox box{0, {}, memory, where};
      const std::string message = message_of([&] { exchange.gather(0, {&box, 1}); });
      EXPECT_EQ(message_of([&] { exchange.scatter(0, {&box, 1}); }) == "no error", message == "no error");
      return message;
    };
    EXPECT_EQ(refused(6, Memory::kHost), "no error");
    EXPECT_THAT(refused(5, Memory::kHost),
                AllOf(HasSubstr("memory box 0 has 5 bytes where its transfers need 6 (a bug"), EndsWith("(rank 1)")));
    EXPECT_THAT(refused(6, Memory::kDevice),
                AllOf(HasSubstr("memory box 0 is in device memory, its transfers are of host memory (a bug"),
                      EndsWith("(rank 1)")));
  });
}

TEST(Exchange, RefusesBuffersThatAreTooSmall) {
  const Tiny tiny;
  comm::run_simulated(2, [&](comm::Communicator& communicator) {
    WindowPool pool(communicator, 7);
    EXPECT_THAT(message_of([&] {
                  Exchange(communicator, tiny.files, tiny.extents, 16, pool, Tiny::of_last(communicator),
                           ExchangeOptions{});
                }),
                HasSubstr("a window of 16 bytes and a buffer of 7 (a bug"));
  });
}

TEST(Exchange, HasNoRoundsWithoutBytes) {
  const plan::ExtentMap extents({}, 3, 64);
  comm::run_simulated(3, [&](comm::Communicator& communicator) {
    WindowPool pool(communicator, 0);
    const Exchange exchange(communicator, {}, extents, 64, pool, {}, ExchangeOptions{});
    EXPECT_EQ(exchange.rounds(), 0U);
    EXPECT_TRUE(exchange.windows().empty());
  });
}

}  // namespace
}  // namespace cairn::io
